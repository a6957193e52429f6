// The official Node client against an endpoint: node main.js HOST:PORT
//
// It sends and receives messages of each type in the topics that test_other_clients.py makes, and prints PASS or FAIL
// for each. NODE_PATH names the directory in which rocketmq-client-nodejs is installed.
'use strict';

const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const silent = { info() {}, warn() {}, error() {}, debug() {}, log() {} };
const common = { endpoints: process.argv[2], namespace: '', logger: silent };
let failed = false;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function expect(got, want) {
  if (JSON.stringify(got) !== JSON.stringify(want)) {
    throw new Error(`got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}

async function scenario(name, run) {
  const began = Date.now();
  const clients = [];
  const start = async (client) => {
    clients.push(client);
    await client.startup();
    return client;
  };
  try {
    await run(start);
    console.log(`PASS ${name} ${(Date.now() - began) / 1000} s`);
  } catch (error) {
    failed = true;
    console.log(`FAIL ${name}: ${error.stack || error}`);
  }
  for (const client of clients) await client.shutdown().catch(() => {});
}

const producer = (start, topic, options) => start(new Producer({ ...common, topic, ...options }));

const consumer = (start, topic) =>
  start(
    new SimpleConsumer({
      ...common,
      consumerGroup: `node-${topic}`,
      subscriptions: new Map().set(topic, '*'),
      awaitDuration: 5000,
    }),
  );

async function receive(from, count, patience) {
  const bodies = [];
  for (const end = Date.now() + patience; bodies.length < count && Date.now() < end; ) {
    for (const message of await from.receive(16, 20000)) {
      bodies.push(message.body.toString());
      await from.ack(message);
    }
  }
  return bodies;
}

async function normal(start) {
  const from = await consumer(start, 'Normal');
  const to = await producer(start, 'Normal');
  await to.send({ topic: 'Normal', tag: 'tag', keys: ['key'], body: Buffer.from('one') });
  expect(await receive(from, 1, 15000), ['one']);
}

async function fifo(start) {
  const from = await consumer(start, 'Fifo');
  const to = await producer(start, 'Fifo');
  const want = [];
  for (let number = 0; number < 5; number++) {
    await to.send({ topic: 'Fifo', messageGroup: 'group', body: Buffer.from(`${number}`) });
    want.push(`${number}`);
  }
  expect(await receive(from, 5, 15000), want);
}

async function delayed(start) {
  const from = await consumer(start, 'Delay');
  const to = await producer(start, 'Delay');
  const due = Date.now() + 3000;
  const kept = await to.send({ topic: 'Delay', deliveryTimestamp: new Date(due), body: Buffer.from('later') });
  const recalled = await to.send({ topic: 'Delay', deliveryTimestamp: new Date(due), body: Buffer.from('never') });
  if (!kept.recallHandle) throw new Error('no handle to recall it by');
  await to.recallMessage('Delay', recalled.recallHandle);
  expect(await receive(from, 1, 20000), ['later']);
  if (Date.now() < due) throw new Error('it came too early');
  expect(await receive(from, 1, 1000), []);
}

async function transaction(start) {
  const checked = [];
  const from = await consumer(start, 'Transaction');
  const to = await producer(start, 'Transaction', {
    checker: {
      async check(message) {
        checked.push(message.body.toString());
        return 1; // commit
      },
    },
  });
  for (const body of ['committed', 'rolled back', 'checked']) {
    const one = to.beginTransaction();
    await to.send({ topic: 'Transaction', body: Buffer.from(body) }, one);
    if (body === 'committed') await one.commit();
    if (body === 'rolled back') await one.rollback();
  }
  expect(await receive(from, 2, 40000), ['committed', 'checked']);
  expect(checked, ['checked']);
}

async function push(start) {
  const tries = {};
  await start(
    new PushConsumer({
      ...common,
      consumerGroup: 'node-Push',
      subscriptions: new Map([['Push', '*']]),
      messageListener: {
        async consume(message) {
          const body = message.body.toString();
          tries[body] = (tries[body] || 0) + 1;
          return body === 'fails once' && tries[body] === 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        },
      },
    }),
  );
  const to = await producer(start, 'Push');
  for (const body of ['works', 'fails once']) await to.send({ topic: 'Push', body: Buffer.from(body) });
  for (const end = Date.now() + 40000; !(tries.works === 1 && tries['fails once'] === 2); await sleep(100)) {
    if (Date.now() > end) throw new Error(JSON.stringify(tries));
  }
}

Promise.all(Object.entries({ normal, fifo, delayed, transaction, push }).map(([name, run]) => scenario(name, run))).then(
  () => process.exit(failed ? 1 : 0),
);
