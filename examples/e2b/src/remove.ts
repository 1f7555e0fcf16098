// Takes a sandbox away, also a paused one: npm run remove -- ID
import { Sandbox } from "e2b";

const [id] = process.argv.slice(2);
if (!id) throw new Error("name the sandbox: npm run remove -- ID");
if (!(await Sandbox.kill(id))) throw new Error(`there is no sandbox ${id}`);
console.log("the sandbox is gone");
process.exit(); // the SDK keeps connections open
