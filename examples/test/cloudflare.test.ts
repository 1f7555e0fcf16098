import { Cloudflare } from "./cloudflare.ts";
import { contract } from "./contract.ts";

contract("cloudflare", "Cloudflare's containers, its worker in the real workerd,", () => new Cloudflare(), (path) => path === "/api/process/start", "recovers");
