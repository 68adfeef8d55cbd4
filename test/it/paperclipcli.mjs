// Runs commands of Paperclip's command line one after the other in one process: starting node and loading the program
// takes most of a command's time. Lines of {argv, env, limitMs?} in, lines of {status, stdout, stderr, calls} out; calls are
// the requests that it made: {method, path, status, isRoute}. {list: true} is answered with all commands.
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

const realFetch = globalThis.fetch;
let calls = [];
globalThis.fetch = async (input, init) => {
  const answer = await realFetch(input, init);
  const url = new URL(input?.url ?? input);
  const text = answer.status === 404 ? await answer.clone().text() : "";
  calls.push({ method: init?.method ?? "GET", path: url.pathname, status: answer.status,
               isRoute: !text.includes("API route not found") });
  return answer;
};

function leaves(command, path = []) {
  if (command.commands.length > 0) return command.commands.flatMap((c) => leaves(c, [...path, c.name()]));
  return [{ path, args: command.registeredArguments.map((a) => a.name()),
            options: command.options.filter((o) => o.mandatory).map((o) => o.long),
            known: command.options.map((o) => o.long) }];
}

async function run({ argv, env, limitMs, list }) {
  if (list) return { commands: leaves(program) };
  const out = { status: 0, stdout: "", stderr: "" };
  calls = out.calls = [];
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
    const over = limitMs ? new Promise((_, no) => setTimeout(() => no(new Error("took too long")), limitMs).unref()) : null;
    await Promise.race([program.parseAsync(argv, { from: "user" }), ...(over ? [over] : [])]);
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
