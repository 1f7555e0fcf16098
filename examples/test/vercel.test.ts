import { contract } from "./contract.ts";
import { Vercel } from "./vercel.ts";

contract("vercel", "Vercel Sandbox", () => new Vercel(), (path) => path.endsWith("/fs/write"));
