import { contract } from "./contract.ts";
import { E2B } from "./e2b.ts";

contract("e2b", "E2B", () => new E2B(), (path) => path === "/files");
