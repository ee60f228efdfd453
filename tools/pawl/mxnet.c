// SPDX-License-Identifier: Apache-2.0
/*
 * pawl mxnet: run a program that uses Apache MXNet with pawl as its engine.
 *
 * The program is not changed: a library that replaces MXNet's engine is preloaded.  It must
 * match the installed mxnet, so it is compiled once on the user's machine, with the headers of
 * that package and with libpawl_mx.a, and kept in a cache.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <pawl/engine.h>

#include "cmd.h"

#define ME "pawl mxnet"
#define SOURCE "pawl_mxnet.cc"
#define MAP "pawl_mxnet.map"
#define BRIDGE "libpawl_mx.a"

struct setup {
	const char *python;	/* the interpreter whose mxnet is used */
	const char *advice;	/* what to do if that is the wrong one */
	const char *library;	/* --library, or NULL */
	bool rebuild, print;
	char *package;		/* the folder of mxnet */
	char *source, *include, *libdir;	/* of pawl; libdir NULL: the linker's default */
	char *built;		/* the library to preload */
};

static void usage(FILE *f)
{
	fputs("Usage: pawl mxnet [OPTION]... [--] COMMAND [ARG]...\n"
	      "Run COMMAND, a program that uses Apache MXNet 1.9.1 or 2.0, with pawl as its engine.\n\n"
	      "  -p, --python=PROGRAM  use the mxnet of this Python (default: COMMAND if it is a\n"
	      "                        Python, or the one that the script names, or the first\n"
	      "                        one among the arguments, or python3)\n"
	      "  -l, --library=FILE    preload this library; build nothing\n"
	      "  -r, --rebuild         build the library again\n"
	      "  -P, --print           print the name of the library, and run nothing\n"
	      "  -h, --help            print this\n\n"
	      "The library is built with $CXX, or c++, on the first use.  See pawl-mxnet(1).\n",
	      f);
}

__attribute__((format(printf, 1, 2)))
static int failed(const char *fmt, ...)
{
	va_list ap;

	fputs(ME ": ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return -1;
}

__attribute__((format(printf, 1, 2)))
static char *text(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	if (n >= 0)
		return s;
	failed("%s", strerror(ENOMEM));
	exit(STATUS_FAILED);
}

/* --- paths --------------------------------------------------------------------- */

/* The path of a file beside this program, or NULL if it does not exist. */
static char *beside(const char *place)
{
	char exe[PATH_MAX], *path, *real;
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (len <= 0)
		return NULL;
	exe[len] = 0;
	*strrchr(exe, '/') = 0;
	path = text("%s/%s", exe, place);
	real = realpath(path, NULL);
	free(path);
	return real;
}

/* The first of the folders that contains the file. */
static char *folder_with(const char *const *place, const char *name)
{
	for (; *place; place++) {
		char *dir = beside(*place), *file;
		bool there;

		if (!dir)
			continue;
		file = text("%s/%s", dir, name);
		there = !access(file, R_OK);
		free(file);
		if (there)
			return dir;
		free(dir);
	}
	return NULL;
}

/* data is a link into the source tree, also in a build elsewhere. */
static int find_pawl(struct setup *s)
{
	static const char *const source[] = { "data/../../compat/mxnet", "../share/pawl", NULL };
	static const char *const include[] = { "data/../../include", "../include", NULL };
	static const char *const libdir[] = { "../..", "../lib", "../lib64", NULL };

	s->source = folder_with(source, SOURCE);
	s->include = folder_with(include, "pawl/engine.h");
	s->libdir = folder_with(libdir, "libpawl.so");
	if (!s->source || !s->include)
		return failed("%s of pawl is not found, neither in the tree nor installed",
			      s->source ? "the header" : SOURCE);
	return 0;
}

/* --- the user's mxnet ---------------------------------------------------------- */

/* The first line that a command prints; NULL if it cannot be run or fails. */
static char *output_of(const char *const *argv, int *status)
{
	char *line = NULL;
	size_t size = 0;
	int fd[2];
	pid_t pid;
	FILE *f;

	*status = -1;
	if (pipe(fd))
		return NULL;
	pid = fork();
	if (!pid) {
		dup2(fd[1], STDOUT_FILENO);
		close(fd[0]);
		close(fd[1]);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	close(fd[1]);
	f = pid > 0 ? fdopen(fd[0], "r") : NULL;
	if (!f || getline(&line, &size, f) < 0) {
		free(line);
		line = NULL;
	}
	if (f)
		fclose(f);
	else
		close(fd[0]);
	if (pid > 0)
		waitpid(pid, status, 0);
	if (line)
		line[strcspn(line, "\n")] = 0;
	return line;
}

static bool is_python(const char *command)
{
	const char *base = strrchr(command, '/');

	return !strncmp(base ? base + 1 : command, "python", 6);
}

static bool runs(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

/* The file that execvp() would run, or NULL; to be freed. */
static char *file_of(const char *command)
{
	const char *path = getenv("PATH"), *end;
	char *file;

	if (strchr(command, '/'))
		return runs(command) ? strdup(command) : NULL;
	if (!path)
		path = "/bin:/usr/bin";
	for (;; path = end + 1) {
		end = strchrnul(path, ':');
		file = text("%.*s/%s", end > path ? (int)(end - path) : 1, end > path ? path : ".",
			    command);
		if (runs(file))
			return file;
		free(file);
		if (!*end)
			return NULL;
	}
}

/*
 * The first Python in a line of words, such as the text behind `sh -c`, in a static buffer, or
 * NULL.  The line is not parsed: quotes and operators of the shell separate words.
 */
static const char *python_in(const char *line)
{
	static const char between[] = " \t\r\n;&|()<>{}'\"`$";
	static char word[PATH_MAX];
	size_t len;
	char *file;

	for (; *line; line += len) {
		line += strspn(line, between);
		len = strcspn(line, between);
		if (len >= sizeof(word))
			continue;
		memcpy(word, line, len);
		word[len] = 0;
		file = is_python(word) ? file_of(word) : NULL;
		free(file);
		if (file)
			return word;
	}
	return NULL;
}

/*
 * The interpreter of a script: the one in the first line, or in the second one if the first
 * names a shell, as in the scripts of pip with a long path.
 */
static const char *python_of_script(const char *command)
{
	char *path = file_of(command), *line = NULL;
	const char *found = NULL;
	size_t size = 0;
	FILE *f = path ? fopen(path, "r") : NULL;

	if (f && getline(&line, &size, f) > 2 && !strncmp(line, "#!", 2)) {
		found = python_in(line + 2);
		if (!found && getline(&line, &size, f) > 8 && !strncmp(line, "'''exec' ", 9))
			found = python_in(line + 9);
	}
	if (f)
		fclose(f);
	free(line);
	free(path);
	return found;
}

/*
 * COMMAND itself or the interpreter of the script that it is.  Otherwise COMMAND may be a
 * program that runs another one: the first Python, or script of a Python, among its arguments;
 * the text of a shell's -c counts as arguments.  NULL: none is found.
 */
static const char *choose_python(char *const *argv)
{
	const char *found;
	int i;

	if (is_python(argv[0]))
		return argv[0];
	for (i = 0; argv[i]; i++) {
		found = python_of_script(argv[i]);
		if (!found && i)
			found = python_in(argv[i]);
		if (found)
			return found;
	}
	return NULL;
}

static int find_package(struct setup *s)
{
	const char *argv[] = {
		s->python, "-c",
		"import importlib.util as u\n"
		"s = u.find_spec('mxnet')\n"
		"print((list(s.submodule_search_locations or ['']) if s else [''])[0])",
		NULL
	};
	int status;

	s->package = output_of(argv, &status);
	if (status == -1 || (WIFEXITED(status) && WEXITSTATUS(status) == 127))
		return failed("cannot run %s%s", s->python, s->advice);
	if (!WIFEXITED(status) || WEXITSTATUS(status) || !s->package)
		return failed("%s does not say where mxnet is", s->python);
	if (!*s->package)
		return failed("%s has no mxnet%s, or pip install mxnet==1.9.1 'numpy<1.24'",
			      s->python, s->advice);
	return 0;
}

/* Check the version in the package's own header. */
static int check_version(const struct setup *s)
{
	char *path = text("%s/include/mxnet/base.h", s->package), *line = NULL;
	static const int one[3] = { 1, 9, 1 }, two[3] = { 2, 0, 0 };
	int v[3] = { -1, -1, -1 };
	size_t size = 0;
	FILE *f = fopen(path, "r");

	while (f && getline(&line, &size, f) > 0) {
		sscanf(line, "#define MXNET_MAJOR %d", &v[0]);
		sscanf(line, "#define MXNET_MINOR %d", &v[1]);
		sscanf(line, "#define MXNET_PATCH %d", &v[2]);
	}
	free(line);
	if (f)
		fclose(f);
	else
		failed("%s: %s; the package has no headers to build against", path,
		       strerror(errno));
	free(path);
	if (!f)
		return -1;
	if (memcmp(v, one, sizeof(v)) && memcmp(v, two, sizeof(v)))
		return failed("mxnet in %s is %d.%d.%d; only 1.9.1 and 2.0.0 are known", s->package,
			      v[0], v[1], v[2]);
	return 0;
}

/* --- building ------------------------------------------------------------------ */

static uint64_t hash(uint64_t h, const char *s)
{
	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3;
	return (h ^ 0xff) * 0x100000001b3;
}

static uint64_t hash_file(uint64_t h, const char *dir, const char *name)
{
	char *path = text("%s/%s", dir, name), *id;
	struct stat st;

	if (stat(path, &st))
		memset(&st, 0, sizeof(st));
	id = text("%s %jd %jd.%ld", path, (intmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec,
		  st.st_mtim.tv_nsec);
	h = hash(h, id);
	free(id);
	free(path);
	return h;
}

static int make_dirs(char *path)
{
	char *p;

	for (p = path + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = 0;
		if (mkdir(path, 0777) && errno != EEXIST)
			return -1;
	}
	return mkdir(path, 0777) && errno != EEXIST ? -1 : 0;
}

/* The name depends on the versions of mxnet, pawl and the compiler. */
static int choose_name(struct setup *s, const char *cxx)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	uint64_t h = 0xcbf29ce484222325;
	char *dir;
	int rc;

	h = hash(hash(h, cxx), pawl_version());
	h = hash_file(h, s->package, "libmxnet.so");
	h = hash_file(h, s->package, "include/mxnet/engine.h");
	h = hash_file(hash_file(h, s->source, SOURCE), s->source, MAP);
	h = hash_file(h, s->include, "pawl/engine.h");
	h = hash_file(h, s->include, "pawl/mx_bridge.h");
	if (s->libdir)
		h = hash_file(h, s->libdir, BRIDGE);
	if (cache && *cache == '/')
		dir = text("%s/pawl", cache);
	else if (home && *home)
		dir = text("%s/.cache/pawl", home);
	else
		return failed("neither XDG_CACHE_HOME nor HOME is set: nowhere to keep the "
			      "library");
	rc = make_dirs(dir);
	if (rc)
		failed("%s: %s", dir, strerror(errno));
	else
		s->built = text("%s/libpawl_mxnet-%016" PRIx64 ".so", dir, h);
	free(dir);
	return rc;
}

static int run(const char *const *argv)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		execvp(argv[0], (char *const *)argv);
		fprintf(stderr, ME ": %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return failed("%s: %s", argv[0], strerror(errno));
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -1;
}

/* Build under a temporary name, since two processes may build at the same time. */
static int build(struct setup *s, const char *cxx)
{
	char *tmp = text("%s.%d", s->built, (int)getpid());
	char *args[] = {
		text("%s/include", s->package), text("-I%s", s->include),
		text("%s/" SOURCE, s->source),
		text("-Wl,--version-script=%s/" MAP, s->source),
		text("-L%s", s->libdir ? s->libdir : "."),
		text("-Wl,-rpath,%s", s->libdir ? s->libdir : "/usr/local/lib"),
	};
	const char *argv[] = {
		cxx, "-std=c++17", "-O2", "-g", "-fPIC", "-shared", "-pthread",
		"-ftls-model=initial-exec",
		/* as libmxnet.so was built */
		"-D_GLIBCXX_USE_CXX11_ABI=0", "-DDMLC_USE_CXX11=1", "-DMXNET_USE_CUDA=0",
		"-DMSHADOW_USE_CUDA=0", "-DMSHADOW_USE_CBLAS=0", "-DMSHADOW_USE_MKL=0",
		"-isystem", args[0], args[1], "-o", tmp, args[2], args[3], "-Wl,-z,defs",
		"-Wl,--exclude-libs," BRIDGE, args[4], args[5], "-l:" BRIDGE, "-lpawl", "-ldl", NULL
	};
	size_t i;
	int rc;

	fprintf(stderr, ME ": building %s (once)\n", s->built);
	rc = run(argv);
	if (!rc && rename(tmp, s->built))
		rc = failed("%s: %s", s->built, strerror(errno));
	else if (rc)
		failed("%s could not build the library from %s/" SOURCE " and " BRIDGE
		       "; $CXX names another compiler", cxx, s->source);
	if (rc)
		unlink(tmp);
	for (i = 0; i < sizeof(args) / sizeof(args[0]); i++)
		free(args[i]);
	free(tmp);
	return rc;
}

static int prepare(struct setup *s)
{
	const char *cxx = getenv("CXX");

	if (s->library) {
		s->built = realpath(s->library, NULL);
		return s->built ? 0 : failed("%s: %s", s->library, strerror(errno));
	}
	if (!cxx || !*cxx)
		cxx = "c++";
	if (find_pawl(s) || find_package(s) || check_version(s) || choose_name(s, cxx))
		return -1;
	if (!s->rebuild && !access(s->built, R_OK))
		return 0;
	return build(s, cxx);
}

/* --- running ------------------------------------------------------------------- */

static int preload(const struct setup *s, char **argv)
{
	const char *old = getenv("LD_PRELOAD");
	char *list = text("%s%s%s", s->built, old && *old ? ":" : "", old ? old : "");
	int rc = setenv("LD_PRELOAD", list, 1);

	/* For pawl top, unless the user forbids it. */
	if (!rc)
		rc = setenv("PAWL_PUBLISH", "1", 0);
	free(list);
	if (rc)
		return failed("%s", strerror(ENOMEM));
	execvp(argv[0], argv);
	return failed("%s: %s", argv[0], strerror(errno));
}

static void forget(struct setup *s)
{
	free(s->package);
	free(s->source);
	free(s->include);
	free(s->libdir);
	free(s->built);
}

int cmd_mxnet(int argc, char **argv)
{
	static const struct option options[] = {
		{ "python", required_argument, NULL, 'p' },
		{ "library", required_argument, NULL, 'l' },
		{ "rebuild", no_argument, NULL, 'r' },
		{ "print", no_argument, NULL, 'P' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct setup s = { 0 };
	int opt, status;

	while ((opt = getopt_long(argc, argv, "+p:l:rPh", options, NULL)) >= 0) {
		switch (opt) {
		case 'p':
			s.python = optarg;
			break;
		case 'l':
			s.library = optarg;
			break;
		case 'r':
			s.rebuild = true;
			break;
		case 'P':
			s.print = true;
			break;
		case 'h':
			usage(stdout);
			return STATUS_OK;
		default:
			return STATUS_USAGE;
		}
	}
	if (optind == argc && !s.print) {
		failed("no command to run; '" ME " --help' lists the options");
		return STATUS_USAGE;
	}
	s.advice = "; name the Python that has mxnet: " ME " --python /path/to/python ...";
	if (!s.python && optind < argc)
		s.python = choose_python(argv + optind);
	if (!s.python)
		s.python = "python3";
	status = prepare(&s) ? STATUS_FAILED : STATUS_OK;
	if (!status && s.print)
		puts(s.built);
	else if (!status && preload(&s, argv + optind))
		status = STATUS_FAILED;
	forget(&s);
	return status;
}
