// Sessions in a Node server: some users come again and again, most do not.
import http from 'node:http';

const SESSIONS = 300_000;
const sessions = new Map();
for (let i = 0; i < SESSIONS; i++) {
  sessions.set(i, { user: `user-${i}`, visits: 0, cart: Array.from({ length: 24 }, (_, k) => ({ item: i * k, count: k })) });
}

const server = http.createServer((request, response) => {
  const session = sessions.get(Number(request.url.slice(1)));
  session.visits += 1;
  response.end(JSON.stringify(session));
});

// A generator that depends on nothing, so that both servers of a comparison get the same requests.
let state = 1;
const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
let done = 0;
let printed = 0;

function ask(port) {
  const user = Math.floor(SESSIONS * (random() < 0.99 ? random() / 40 : random()));
  http.get({ port, agent, path: `/${user}` }, (response) => {
    response.resume();
    response.on('end', () => {
      done += 1;
      if (Date.now() - printed > 50) {
        printed = Date.now();
        process.stdout.write(`done ${done}\n`);
      }
      ask(port);
    });
  });
}

server.listen(0, '127.0.0.1', () => {
  for (let i = 0; i < 4; i++) ask(server.address().port);
});
