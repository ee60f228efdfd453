// SPDX-License-Identifier: Apache-2.0
/*
 * A fuzz target without libFuzzer: runs files, folders of files, and random bytes.
 *
 *	fuzz_x [-r SEED -n INPUTS] [-v] [FILE | FOLDER]...
 *
 * With -r, after the files: INPUTS inputs, each made from SEED + i: random bytes, or one of
 * the given files with some bytes changed, cut or joined to another file.  A failure prints
 * the command that runs the failed input again; -v prints each call.
 */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>
#include <base/random.h>
#include "../unit/must.h"
#include "fuzz.h"

#define LIMIT_S		60	/* per input */
#define MAX_SIZE	(1u << 20)

struct blob { uint8_t *p; size_t n; };

const char *fuzz_file;
int fuzz_verbose;
static struct blob *files;
static size_t nfiles, ran;

static void on_signal(int sig)
{
	/* The process is about to end, and no thread holds the lock of stderr. */
	signal(sig, SIG_DFL);
	signal(SIGABRT, SIG_DFL);
	fprintf(stderr, "signal %d%s\n", sig, sig == SIGALRM ? ": the input does not end" : "");
	fuzz_say_replay();
	if (sig == SIGALRM)
		abort();
	raise(sig);
}

/* A copy of the exact size, so that a read beyond its end is detected. */
static void run(const uint8_t *p, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	if (!copy)
		abort();
	memcpy(copy, p, n);
	alarm(patience_ms(1000 * LIMIT_S) / 1000);
	LLVMFuzzerTestOneInput(copy, n);
	alarm(0);
	free(copy);
	ran++;
}

static void run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct blob b = { malloc(MAX_SIZE), 0 };

	if (!f || !b.p) {
		perror(path);
		exit(2);
	}
	b.n = fread(b.p, 1, MAX_SIZE, f);
	fclose(f);
	if (fuzz_verbose)
		printf("%s: %zu bytes\n", path, b.n);
	fuzz_file = path;
	run(b.p, b.n);
	fuzz_file = NULL;
	files = realloc(files, (nfiles + 1) * sizeof(*files));
	if (!files)
		abort();
	files[nfiles++] = b;
}

static void run_path(const char *path)
{
	struct dirent **list;
	struct stat st;
	char name[4096];
	int i, n;

	if (stat(path, &st)) {
		perror(path);
		exit(2);
	}
	if (!S_ISDIR(st.st_mode)) {
		run_file(path);
		return;
	}
	n = scandir(path, &list, NULL, alphasort);
	for (i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%s/%s", path, list[i]->d_name);
		if (list[i]->d_name[0] != '.')
			run_path(name);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
}

/* Make random bytes, or change a file; the result depends only on the seed and the files. */
static void run_random(uint64_t seed)
{
	static uint8_t buf[4096];
	size_t n = 1 + random_next(&seed) % (random_next(&seed) % 4 ? 200 : 1500), i, k;

	if (nfiles && random_next(&seed) % 4) {
		struct blob a = files[random_next(&seed) % nfiles], b = files[random_next(&seed) % nfiles];

		n = a.n < sizeof(buf) ? a.n : sizeof(buf);
		memcpy(buf, a.p, n);
		if (random_next(&seed) % 3 == 0 && n) {
			i = random_next(&seed) % n;
			k = b.n < sizeof(buf) - i ? b.n : sizeof(buf) - i;
			memcpy(buf + i, b.p + (b.n - k), k);
			n = i + k;
		}
		for (k = random_next(&seed) % 16; k-- && n; )
			buf[random_next(&seed) % n] = (uint8_t)random_next(&seed);
		if (random_next(&seed) % 8 == 0)
			n = random_next(&seed) % (n + 1);
	} else {
		for (i = 0; i < n; i++)
			buf[i] = (uint8_t)random_next(&seed);
	}
	run(buf, n);
}

int main(int argc, char **argv)
{
	uint64_t seed = 0, inputs = 0, i;
	char figures[256];
	int opt;

	while ((opt = getopt(argc, argv, "r:n:v")) != -1) {
		switch (opt) {
		case 'r':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			inputs = strtoull(optarg, NULL, 0);
			break;
		case 'v':
			fuzz_verbose = 1;
			break;
		default:
			fprintf(stderr, "usage: %s [-r SEED -n INPUTS] [-v] [FILE | FOLDER]...\n",
				argv[0]);
			return 2;
		}
	}
	signal(SIGALRM, on_signal);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	signal(SIGSEGV, on_signal);
	signal(SIGBUS, on_signal);
#endif
	for (; optind < argc; optind++)
		run_path(argv[optind]);
	for (i = 0; i < inputs; i++)
		run_random(seed + i);
	fuzz_figures(figures, sizeof(figures));
	printf("C16 fuzz_%s files=%zu inputs=%zu seed=%llu %s PASS\n", fuzz_target, nfiles, ran,
	       (unsigned long long)seed, figures);
	for (i = 0; i < nfiles; i++)
		free(files[i].p);
	free(files);
	return 0;
}
