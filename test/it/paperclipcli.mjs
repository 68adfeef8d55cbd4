// Runs commands of Paperclip's command line one after the other in one process: starting node and loading the program
// takes most of a command's time. Lines of {argv, env} in, lines of {status, stdout, stderr} out.
import { createInterface } from "node:readline";

class Exit extends Error {
  constructor(status) {
    super(`exit ${status}`);
    this.status = status;
  }
}

const say = process.stdout.write.bind(process.stdout);
const { program } = await import(process.argv[2]);

process.exit = (status) => {
  throw new Exit(status ?? process.exitCode ?? 0);
};

async function run({ argv, env }) {
  const out = { status: 0, stdout: "", stderr: "" };
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, env);
  process.exitCode = 0;
  for (const name of ["stdout", "stderr"]) {
    process[name].write = (chunk) => {
      out[name] += chunk;
      return true;
    };
  }
  try {
    await program.parseAsync(argv, { from: "user" });
    out.status = process.exitCode ?? 0;
  } catch (error) {
    out.status = error instanceof Exit ? error.status : 1;
    if (!(error instanceof Exit)) out.stderr += `${error instanceof Error ? error.message : error}\n`;
  }
  process.exitCode = 0;
  return out;
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await run(JSON.parse(line));
  say(`${JSON.stringify(answer)}\n`);
}
process.reallyExit(0);
