// Drives the class RpcClient of a client of pi against nacre, and prints one JSON object with what
// the client has seen. Arguments: the module of the class, and the options of its constructor.
const [file, options] = process.argv.slice(2);
const { RpcClient } = await import(file);
const client = new RpcClient(JSON.parse(options));
const events = [];
const seen = {};
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

client.onEvent((event) => events.push(event));
await client.start();
seen.bash = await client.bash("echo out; echo err >&2; exit 3");
seen.streamed = await client.bash("for i in 1 2 3; do echo $i; sleep 0.2; done");

const running = [
  client.bash("(setsid sleep 71.91 &); sleep 71.91 & touch begun; sleep 71.91"),
  client.bash("until test -e begun; do sleep 0.05; done; touch both; sleep 71.91"),
];
await client.bash("until test -e both; do sleep 0.05; done");
const aborted = performance.now();
await client.abortBash();
seen.aborted = await Promise.all(running);
while ((await client.bash("pgrep -fx 'sleep 71[.]91'")).exitCode === 0) await sleep(20);
seen.abortedAfter = performance.now() - aborted;

seen.long = await client.bash("seq 20000");
const asked = performance.now();
seen.unknown = await client.getState().then(() => "answered", (error) => error.message);
seen.unknownAfter = performance.now() - asked;
seen.after = await client.bash("echo still here");
seen.events = events.map((event) => event.type);
await client.stop();
console.log(JSON.stringify(seen));
process.exit(0);
