// Brings a paused sandbox back, or keeps a running one for longer: npm run again -- ID
import { Sandbox } from "e2b";
import { minutes, port } from "../../gateway/gateway.ts";

const [id] = process.argv.slice(2);
if (!id) throw new Error("name the sandbox: npm run again -- ID");
const sandbox = await Sandbox.connect(id, { timeoutMs: minutes * 60_000 });
console.log(`https://${sandbox.getHost(port)} answers for ${minutes} minutes from now, with the token that it had`);
process.exit(); // the SDK keeps connections open
