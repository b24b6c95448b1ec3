// Launcher of nacre for the RPC clients of pi that start a JavaScript file with node or bun:
// `new RpcClient({ cliPath: "pi_launcher.mjs" })`. The variable NACRE names the program to start.
import { spawn } from "node:child_process";

const child = spawn(process.env.NACRE ?? "nacre", process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`nacre cannot be started: ${error.message}`);
  process.exit(127);
});
child.on("exit", (code) => process.exit(code ?? 1));
