import { contract } from "./contract.ts";
import { Daytona } from "./daytona.ts";

contract("daytona", "Daytona", () => new Daytona(), (path) => path.endsWith("/process/execute"));
