// SPDX-License-Identifier: Apache-2.0
/*
 * gRPC of the server (tools/serve) with any bytes from a client: frames, messages, queue, slot
 * and answer; see serve_fixture.h.
 *
 * The first byte says what the others are: 0 to 127: what the client sends behind the preface,
 * in pieces of that size (0: at once); from 128: messages of a call of the method that its low
 * four bits say.  Bit 6: each message is cut into frames of 13 bytes.  Two bytes before each
 * message are its length, and what is behind the last byte is missing.
 *
 * Nothing is read or written beyond its memory, every call that was begun ends, no memory is
 * held for a client that is gone, and what comes back are frames of HTTP/2.
 */
#include "serve_fixture.h"

const char fuzz_target[] = "grpc";
const uint8_t *fuzz_data;
size_t fuzz_size;
static unsigned long answers, good;

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
static const char *const methods[16] = {
	"ModelInfer", "ModelStreamInfer", "ServerLive", "ServerReady", "ServerMetadata",
	"ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex",
	"RepositoryModelLoad", "RepositoryModelUnload", "Nope", "ModelInfer", "ModelStreamInfer",
	"ModelStreamInfer" };

struct out {
	uint8_t *p;
	size_t n;
};

static void put(struct out *o, const void *p, size_t n)
{
	memcpy(o->p + o->n, p, n);
	o->n += n;
}

static void frame(struct out *o, int type, int flags, const void *p, size_t n)
{
	const uint8_t head[] = { (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n,
				 (uint8_t)type, (uint8_t)flags, 0, 0, 0, 1 };

	put(o, head, sizeof(head));
	put(o, p, n);
}

/* A field of HPACK: literal, without an index. */
static void literal(struct out *o, const char *name, const char *value)
{
	const uint8_t n = (uint8_t)strlen(name), v = (uint8_t)strlen(value);

	put(o, "", 1);
	put(o, &n, 1);
	put(o, name, n);
	put(o, &v, 1);
	put(o, value, v);
}

static void call(struct out *o, const uint8_t *p, size_t n, const char *method, bool cut)
{
	uint8_t text[512];
	struct out head = { text, 0 };
	char path[64];
	size_t length, k;

	snprintf(path, sizeof(path), "/inference.GRPCInferenceService/%s", method);
	literal(&head, ":method", "POST");
	literal(&head, ":scheme", "http");
	literal(&head, ":path", path);
	literal(&head, "content-type", "application/grpc");
	literal(&head, "te", "trailers");
	frame(o, 1, 4, text, head.n);
	while (n >= 2) {
		length = (size_t)(p[0] | p[1] << 8);
		p += 2;
		n -= 2;
		text[0] = 0;
		text[1] = text[2] = 0;
		text[3] = (uint8_t)(length >> 8);
		text[4] = (uint8_t)length;
		frame(o, 0, 0, text, 5);
		for (length = length < n ? length : n; length; length -= k) {
			k = cut ? 13 : 16384;
			k = k < length ? k : length;
			frame(o, 0, 0, p, k);
			p += k;
			n -= k;
		}
	}
	frame(o, 0, 1, "", 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* a frame for each 13 bytes at worst, and one for each length */
	struct out o = { malloc(size * 8 + 1024), 0 };
	size_t got = 0, piece = 0;
	char first[16] = "";
	struct conn *c;
	int fd;

	fuzz_data = data;
	fuzz_size = size;
	if (!sv)
		serve_start();
	if (!size || !o.p) {
		free(o.p);
		return 0;
	}
	put(&o, preface, sizeof(preface));
	if (data[0] < 128) {
		put(&o, data + 1, size - 1);
		piece = data[0];
	} else {
		call(&o, data + 1, size - 1, methods[data[0] & 15], data[0] & 64);
	}
	c = serve_connect(LISTEN_GRPC, &fd);
	serve_send(c, fd, o.p, o.n, piece, first, sizeof(first), &got);
	serve_close(c, fd);
	free(o.p);
	/* SETTINGS are first */
	if (got && (got < 9 || first[3] != 4 || memcmp(first + 5, "\0\0\0\0", 4)))
		fuzz_broken("an answer of %zu bytes does not begin with SETTINGS", got);
	answers += got > 0;
	good += load_relaxed(&version.stats.success.n) > 0;
	store_relaxed(&version.stats.success.n, 0);
	return 0;
}

void fuzz_figures(char *buf, size_t len)
{
	snprintf(buf, len, "answers=%lu good=%lu", answers, good);
}
