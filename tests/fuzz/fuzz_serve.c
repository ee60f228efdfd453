// SPDX-License-Identifier: Apache-2.0
/*
 * The server (tools/serve) with any bytes from a client: HTTP, JSON, tensors, queue, slot and
 * answer, on one thread with an engine that runs ops inside their push.
 *
 * The first byte says what the others are: 0 to 127: what the client sends, in pieces of that
 * size (0: at once), and then once more at once, since a head that repeats the last one is not
 * parsed; from 128: the body of an infer request, behind a correct header, whose
 * JSON is as long as the second and third byte say.
 *
 * Nothing is read or written beyond its memory, every request that was begun ends, and what
 * comes back begins as an answer of HTTP.
 */
#include "serve_fixture.h"

const char fuzz_target[] = "serve";
const uint8_t *fuzz_data;
size_t fuzz_size;
static unsigned long answers, good;

static void client(const uint8_t *p, size_t n, size_t piece)
{
	char first[16] = "";
	size_t got = 0;
	struct conn *c;
	int fd;

	c = serve_connect(LISTEN_HTTP, &fd);
	serve_send(c, fd, p, n, piece, first, 13, &got);
	if (sv->loops[0].nconns)
		serve_send(c, fd, p, n, 0, first, 13, &got);
	serve_close(c, fd);
	if (got && memcmp(first, "HTTP/1.1 ", got < 9 ? got : 9))
		fuzz_broken("an answer begins with \"%s\"", first);
	answers += got > 0;
	good += got >= 12 && !memcmp(first + 9, "200", 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t body, head;
	char *text;

	fuzz_data = data;
	fuzz_size = size;
	if (!sv)
		serve_start();
	if (size < 3)
		return 0;
	if (data[0] < 128) {
		client(data + 1, size - 1, data[0]);
		return 0;
	}
	body = size - 3;
	text = malloc(body + 256);
	head = (size_t)sprintf(
		text, "POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n", body);
	if (data[1] | data[2])
		head += (size_t)sprintf(text + head, "Inference-Header-Content-Length: %d\r\n",
					data[1] | data[2] << 8);
	head += (size_t)sprintf(text + head, "\r\n");
	memcpy(text + head, data + 3, body);
	client((uint8_t *)text, head + body, 0);
	free(text);
	return 0;
}

void fuzz_figures(char *buf, size_t len)
{
	snprintf(buf, len, "answers=%lu good=%lu", answers, good);
}
