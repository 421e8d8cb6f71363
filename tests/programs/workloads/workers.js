// Prints a summary of work in objects, native buffers and worker threads.
'use strict';
const { createHash } = require('node:crypto');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { brotliCompressSync, brotliDecompressSync, deflateSync, inflateSync } =
  require('node:zlib');

function chances(seed) {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return state % limit;
  };
}

function work(seed, rounds) {
  const chance = chances(seed);
  const sum = createHash('sha256');
  const live = new Map();
  for (let round = 0; round < rounds; round++) {
    const bytes = Buffer.allocUnsafeSlow(1 + chance(60000)).fill(chance(256));
    for (let i = 0; i < bytes.length; i += 7) bytes[i] = chance(256);
    const packed = deflateSync(bytes);
    if (!inflateSync(packed).equals(bytes)) throw new Error('deflate changed the data');
    if (round % 20 === 0) {
      const tight = brotliCompressSync(bytes, { params: { 1: 4 } });
      if (!brotliDecompressSync(tight).equals(bytes)) throw new Error('brotli did');
    }
    live.set(chance(50), bytes);
    sum.update(packed);
    const text = JSON.stringify([...live.keys()].map((key) => ({ key, text: 'x'.repeat(key) })));
    sum.update(JSON.stringify(JSON.parse(text)));
  }
  return sum.digest('hex');
}

if (!isMainThread) {
  // The buffer changes hands: this thread's memory is freed by another.
  const big = new Uint8Array(1 << 20).fill(workerData.seed);
  parentPort.postMessage({ result: work(workerData.seed, 120), big }, [big.buffer]);
} else {
  const start = (seed) =>
    new Promise((resolve, reject) => {
      const worker = new Worker(__filename, { workerData: { seed } });
      let message;
      worker.on('message', (received) => (message = received));
      worker.on('error', reject);
      worker.on('exit', () => resolve(`${message.result} ${message.big[99]}`));
    });
  (async () => {
    console.log('main', work(1, 400));
    for (let round = 0; round < 3; round++) {
      const seeds = [2, 3, 4, 5].map((seed) => seed + round * 10);
      console.log('workers', await Promise.all(seeds.map(start)));
    }
    const buffers = await Promise.all(
      Array.from({ length: 200 }, async (_, i) => Buffer.alloc(i * 5000, i).length));
    console.log('buffers', buffers.reduce((a, b) => a + b));
  })();
}
