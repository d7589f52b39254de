// Fills a map with objects in insertAll(), and keeps it.
const all = new Map();

function insertAll() {
  for (let i = 0; i < 800000; i++) all.set(i, { number: i, name: "x" + i });
}

insertAll();
setInterval(() => all.size, 1000);
