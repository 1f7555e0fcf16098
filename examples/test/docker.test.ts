import { contract } from "./contract.ts";
import { Docker } from "./docker.ts";

contract("docker", "Docker", () => new Docker(), (path) => path === "/docker/port");
