// SPDX-License-Identifier: Apache-2.0
/*
 * tools/pawl/mxnet.c, also with system calls that fail: the files that it finds, its messages, and
 * that it leaves nothing behind.  tests/tools/test_mxnet.sh runs the command.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "util.h"
#include "child.h"
#include <fcntl.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

static char folder[32];			/* the folder of a test */
static char program[PATH_MAX + 8];	/* the path that /proc/self/exe has for the command */
static const char *release = "1";	/* the version of pawl */
static u32 refuse_in;			/* 1: the next allocation fails; 0: none does */
static bool no_process, no_stream, no_variable;	/* fork(), fdopen(), setenv() fail */
static int allocated, streams;		/* allocations and streams in use */
static jmp_buf left_to;
static int left_with;			/* the argument of exit() */

static void *allocates(void *p)
{
	allocated += !!p;
	return p;
}

static bool refused(void)
{
	if (!refuse_in || --refuse_in)
		return false;
	errno = ENOMEM;
	return true;
}

__attribute__((format(printf, 2, 0)))
static int test_vasprintf(char **s, const char *fmt, va_list ap)
{
	int n = refused() ? -1 : vasprintf(s, fmt, ap);

	allocated += n >= 0;
	return n;
}

static char *test_strdup(const char *s)
{
	return refused() ? NULL : allocates(strdup(s));
}

static ssize_t test_getline(char **line, size_t *size, FILE *f)
{
	bool was = *line;
	ssize_t n = getline(line, size, f);

	allocated += !was && *line;
	return n;
}

static void test_free(void *p)
{
	allocated -= !!p;
	free(p);
}

static ssize_t test_readlink(const char *path, char *buf, size_t n)
{
	size_t len = strlen(program);

	MUST(!strcmp(path, "/proc/self/exe"));
	if (!len)
		return -1;
	/* readlink() does not terminate the path, so the buffer must have a byte for that */
	MUST(n < PATH_MAX);
	memset(buf, 'x', n);
	len = len < n ? len : n;
	memcpy(buf, program, len);
	return (ssize_t)len;
}

static FILE *opened(FILE *f)
{
	streams += !!f;
	return f;
}

static pid_t test_fork(void)
{
	if (no_process) {
		errno = EAGAIN;
		return -1;
	}
	return fork();
}

static __attribute__((noreturn)) void leave(int status)
{
	left_with = status;
	longjmp(left_to, 1);
}

static const char *test_version(void)
{
	return release;
}

#define vasprintf test_vasprintf
#define strdup(s) test_strdup(s)
#define realpath(path, to) allocates(realpath(path, to))
#define getline(line, size, f) test_getline(line, size, f)
#define free(p) test_free(p)
#define readlink(path, buf, n) test_readlink(path, buf, n)
#define fopen(path, mode) opened(fopen(path, mode))
#define fdopen(fd, mode) (no_stream ? NULL : opened(fdopen(fd, mode)))
#define fclose(f) (streams--, fclose(f))
#define fork() test_fork()
#define setenv(name, value, over) (no_variable ? -1 : setenv(name, value, over))
#define exit(status) leave(status)
#define pawl_version() test_version()
#define cmd_mxnet mxnet_here
#include <tools/pawl/mxnet.c>
#undef vasprintf
#undef strdup
#undef realpath
#undef getline
#undef free
#undef readlink
#undef fopen
#undef fdopen
#undef fclose
#undef fork
#undef setenv
#undef exit
#undef pawl_version

/* --- a pawl, a Python, an mxnet and a compiler that are stand-ins, in a folder --- */

static char *in_tmp(const char *name)
{
	static char path[8][PATH_MAX];
	static u32 n;
	char *p = path[n++ % COUNT(path)];

	snprintf(p, PATH_MAX, "%s/%s", folder, name);
	return p;
}

static void put(const char *name, const char *contents)
{
	char *path = in_tmp(name), *at;
	FILE *f;

	for (at = path + strlen(folder) + 1; (at = strchr(at, '/')); *at++ = '/') {
		*at = 0;
		MUST(!mkdir(path, 0777) || errno == EEXIST);
	}
	f = fopen(path, "w");
	MUST(f && fputs(contents, f) >= 0 && !fclose(f));
	if (*contents == '#')
		MUST(!chmod(path, 0755));
}

static void setup(void)
{
	char text_[256];

	umask(022);
	strcpy(folder, "/tmp/pawl-test-XXXXXX");
	MUST(mkdtemp(folder));
	MUST(!chmod(folder, 0755));
	strcpy(program, in_tmp("in/bin/pawl"));
	put("in/bin/pawl", "");
	put("in/share/pawl/pawl_mxnet.cc", "");
	put("in/share/pawl/pawl_mxnet.map", "");
	put("in/include/pawl/engine.h", "");
	put("in/include/pawl/mx_bridge.h", "");
	put("in/lib/libpawl.so", "");
	put("in/lib/libpawl_mx.a", "");
	put("mxnet/include/mxnet/base.h",
	    "#define MXNET_MAJOR 1\n#define MXNET_MINOR 9\n#define MXNET_PATCH 1\n");
	put("mxnet/include/mxnet/engine.h", "");
	put("mxnet/libmxnet.so", "");
	snprintf(text_, sizeof(text_), "#!/bin/sh\necho %s/mxnet\n", folder);
	put("python", text_);
	put("cxx", "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\n"
	    "echo \"$2\" >\"$2\"\n");
	setenv("XDG_CACHE_HOME", in_tmp("cache"), 1);
	setenv("CXX", in_tmp("cxx"), 1);
	unsetenv("LD_PRELOAD");
	release = "1";
	refuse_in = 0;
	no_process = no_stream = no_variable = false;
	allocated = streams = 0;
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	MUST(!system(command));
}

/* --- what is called, and what it says --- */

static char *said;

/* Make a call, and keep what it prints.  The call leaves no stream, descriptor or process. */
#define SAYS(call) ({								\
	FILE *err_ = stderr, *out_ = stdout;					\
	int fd_ = dup(0);							\
	size_t n_;								\
										\
	MUST(fd_ >= 0 && !close(fd_));						\
	free(said);								\
	stdout = stderr = open_memstream(&said, &n_);				\
	MUST(stderr);								\
	__auto_type got_ = (call);						\
	MUST(!fclose(stderr));							\
	stderr = err_;								\
	stdout = out_;								\
	ck_assert_int_eq(streams, 0);						\
	ck_assert_int_eq(dup(0), fd_);						\
	close(fd_);								\
	ck_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);		\
	got_; })

/* Run pawl mxnet with these words, in which @ means the folder.  The call leaves no memory. */
static int mxnet(const char *words)
{
	static char text_[8 * PATH_MAX], *argv[16];
	char *copy = strdup(words), *word, *state, *at = text_;
	int n = 0, rc;

	for (word = strtok_r(copy, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
		argv[n++] = at;
		for (; *word; word++)
			at += sprintf(at, "%s%.*s", *word == '@' ? in_tmp("") : "",
				      *word != '@', word);
		*at++ = 0;
	}
	argv[n] = NULL;
	free(copy);
	optind = 0;
	rc = SAYS(mxnet_here(n, argv));
	ck_assert_msg(!allocated, "%s: %d not freed", words, allocated);
	return rc;
}

/* --- tests --- */

START_TEST(test_no_result_of_the_command_leaves_anything)
{
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_OK);
	ck_assert_msg(strstr(said, "building") != NULL, "%s", said);
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_OK);
	ck_assert_msg(strstr(said, in_tmp("cache/pawl/libpawl_mxnet-")) == said, "%s", said);
	ck_assert_int_eq(mxnet("mxnet -r -P env A=1 @python @python"), STATUS_OK);
	ck_assert_int_eq(mxnet("mxnet -P sh -c true;@python"), STATUS_OK);
	put("script", "#!/bin/sh\n'''exec' /no/python\n");
	ck_assert_int_eq(mxnet("mxnet -P -l @cxx @script"), STATUS_OK);
	ck_assert_int_eq(mxnet("mxnet -l @cxx @no/command"), STATUS_FAILED);
	ck_assert_str_eq(getenv("LD_PRELOAD"), in_tmp("cxx"));
	ck_assert_int_eq(mxnet("mxnet -l @python @no/command"), STATUS_FAILED);
	ck_assert_int_eq(strlen(getenv("LD_PRELOAD")),
			 strlen(in_tmp("cxx:")) + strlen(in_tmp("python")));
	unsetenv("LD_PRELOAD");
	ck_assert_int_eq(mxnet("mxnet -l @none @no/command"), STATUS_FAILED);
	put("compiler", "#!/bin/sh\nexit 1\n");
	setenv("CXX", in_tmp("compiler"), 1);
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_FAILED);
	unsetenv("HOME");
	setenv("XDG_CACHE_HOME", "cache", 1);
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_FAILED);
	setenv("XDG_CACHE_HOME", in_tmp("python"), 1);
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_FAILED);
	put("mxnet/include/mxnet/base.h", "#define MXNET_MAJOR 2\n");
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_FAILED);
	unlink(in_tmp("mxnet/include/mxnet/base.h"));
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_FAILED);
	put("python", "#!/bin/sh\nexit 0\n");
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_FAILED);
	ck_assert_int_eq(mxnet("mxnet -P -p @python2"), STATUS_FAILED);
	unlink(in_tmp("in/include/pawl/engine.h"));
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_FAILED);
	*program = 0;
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_FAILED);
}
END_TEST

/* Two processes that build the library at a time do so in files of their own. */
START_TEST(test_the_file_in_which_the_library_is_built)
{
	char want[PATH_MAX], name[PATH_MAX];
	FILE *f;

	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_OK);
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_OK);
	*strchr(said, '\n') = 0;
	snprintf(want, sizeof(want), "%s.%d\n", said, (int)getpid());
	f = fopen(said, "r");
	MUST(f && fgets(name, sizeof(name), f) && !fclose(f));
	ck_assert_str_eq(name, want);
}
END_TEST

START_TEST(test_no_process_can_be_made)
{
	char want[PATH_MAX];
	siginfo_t info;
	int status;
	pid_t pid;

	no_process = true;
	ck_assert_int_eq(mxnet("mxnet -P -p @python"), STATUS_FAILED);
	snprintf(want, sizeof(want), "pawl mxnet: cannot run %s/python; name the Python that",
		 folder);
	ck_assert_msg(strstr(said, want) == said, "%s", said);
	ck_assert_int_eq(SAYS(run((const char *[]){ "/bin/true", NULL })), -1);
	ck_assert_str_eq(said, "pawl mxnet: /bin/true: Resource temporarily unavailable\n");
	/* the status of a child of another function stays for that function */
	no_process = false;
	pid = child_fork();
	if (!pid)
		_exit(0);
	MUST(!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
	no_process = true;
	ck_assert_ptr_null(output_of((const char *[]){ "/bin/true", NULL }, &status));
	ck_assert_int_eq(status, -1);
	OK(child_wait(pid));
	no_process = false;
	ck_assert_int_eq(SAYS(run((const char *[]){ "/bin/true", NULL })), 0);
	ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(test_no_stream_can_be_opened)
{
	const char *argv[] = { in_tmp("python"), NULL };
	int status = 77;

	no_stream = true;
	ck_assert_ptr_null(SAYS(output_of(argv, &status)));
	/* the pipe may have ended the child, whose status is set in any case */
	ck_assert_int_ne(status, -1);
	ck_assert_int_ne(status, 77);
}
END_TEST

static int without_memory(void)
{
	refuse_in = 1;
	if (!setjmp(left_to))
		(void)beside("x");
	return 0;
}

START_TEST(test_no_memory)
{
	char library[64];
	struct setup s = { .built = library };
	char *argv[] = { in_tmp("none"), NULL };

	strcpy(library, "library");
	left_with = 77;
	OK(SAYS(without_memory()));
	ck_assert_int_eq(left_with, STATUS_FAILED);
	ck_assert_str_eq(said, "pawl mxnet: Cannot allocate memory\n");
	no_variable = true;
	ck_assert_int_eq(SAYS(preload(&s, argv)), -1);
	ck_assert_str_eq(said, "pawl mxnet: Cannot allocate memory\n");
	ck_assert_ptr_null(getenv("LD_PRELOAD"));
	no_variable = false;
	ck_assert_int_eq(SAYS(preload(&s, argv)), -1);
	ck_assert_msg(strstr(said, "none: No such file or directory\n") != NULL, "%s", said);
	ck_assert_str_eq(getenv("LD_PRELOAD"), "library");
	unsetenv("LD_PRELOAD");
	ck_assert_int_eq(allocated, 0);
}
END_TEST

/* Files are found beside the program, also if the path of its folder has the largest length. */
START_TEST(test_files_beside_the_program)
{
	char *path;

	path = SAYS(beside("../lib"));
	ck_assert_str_eq(path, in_tmp("in/lib"));
	test_free(path);
	ck_assert_ptr_null(SAYS(beside("../none")));
	memset(program, '/', sizeof(program) - 1);
	path = SAYS(beside("tmp"));
	ck_assert_str_eq(path, "/tmp");
	test_free(path);
	*program = 0;
	ck_assert_ptr_null(SAYS(beside("../lib")));
	ck_assert_int_eq(allocated, 0);
}
END_TEST

/* The source tree comes before installed files, and lib before lib64. */
START_TEST(test_the_files_of_pawl)
{
	static const struct { const char *file, *says; } missing[] = {
		{ "in/share/pawl/pawl_mxnet.cc", "pawl_mxnet.cc" },
		{ "in/include/pawl/engine.h", "the header" } };
	struct setup s = { 0 };
	char want[128];
	u32 i;

	put("in/lib64/libpawl.so", "");
	OK(SAYS(find_pawl(&s)));
	ck_assert_str_eq(s.source, in_tmp("in/share/pawl"));
	ck_assert_str_eq(s.include, in_tmp("in/include"));
	ck_assert_str_eq(s.libdir, in_tmp("in/lib"));
	forget(&s);
	unlink(in_tmp("in/lib/libpawl.so"));
	memset(&s, 0, sizeof(s));
	OK(SAYS(find_pawl(&s)));
	ck_assert_str_eq(s.libdir, in_tmp("in/lib64"));
	forget(&s);
	/* one of them is missing */
	for (i = 0; i < COUNT(missing); i++) {
		unlink(in_tmp(missing[i].file));
		memset(&s, 0, sizeof(s));
		ck_assert_int_eq(SAYS(find_pawl(&s)), -1);
		snprintf(want, sizeof(want), "pawl mxnet: %s of pawl is not found, neither in the "
			 "tree nor installed\n", missing[i].says);
		ck_assert_str_eq(said, want);
		forget(&s);
		put(missing[i].file, "");
	}
	/* a build of a source tree has a link to its data, and its library two folders above */
	put("src/demo/data/x", "");
	put("src/compat/mxnet/pawl_mxnet.cc", "");
	put("src/include/pawl/engine.h", "");
	put("in/libpawl.so", "");
	put("in/tools/bin/pawl", "");
	put("in/tools/share/pawl/pawl_mxnet.cc", "");
	put("in/tools/include/pawl/engine.h", "");
	put("in/tools/lib/libpawl.so", "");
	MUST(!symlink(in_tmp("src/demo/data"), in_tmp("in/tools/bin/data")));
	strcpy(program, in_tmp("in/tools/bin/pawl"));
	memset(&s, 0, sizeof(s));
	OK(SAYS(find_pawl(&s)));
	ck_assert_str_eq(s.source, in_tmp("src/compat/mxnet"));
	ck_assert_str_eq(s.include, in_tmp("src/include"));
	ck_assert_str_eq(s.libdir, in_tmp("in"));
	forget(&s);
	ck_assert_int_eq(allocated, 0);
}
END_TEST

/* A file that the user cannot read is passed over as one that does not exist. */
START_TEST(test_files_that_cannot_be_read)
{
	static const char *const place[] = { "../share/pawl", "../include/pawl", NULL };
	char *dir;
	pid_t pid;

	put("in/include/pawl/pawl_mxnet.cc", "");
	MUST(!chmod(in_tmp("in/share/pawl/pawl_mxnet.cc"), 0));
	pid = child_fork();
	if (!pid) {
		/* root reads everything */
		if (!geteuid() && setuid(65534))
			_exit(0);
		dir = folder_with(place, "pawl_mxnet.cc");
		MUST(dir && !strcmp(dir, in_tmp("in/include/pawl")));
		_exit(0);
	}
	OK(child_wait(pid));
}
END_TEST

START_TEST(test_programs_without_a_path)
{
	char *path = strdup(getenv("PATH") ? getenv("PATH") : ""), *file;

	unsetenv("PATH");
	file = SAYS(file_of("sh"));
	ck_assert_str_eq(file, "/bin/sh");
	test_free(file);
	file = SAYS(file_of("env"));
	ck_assert(file && (!strcmp(file, "/bin/env") || !strcmp(file, "/usr/bin/env")));
	test_free(file);
	ck_assert_ptr_null(SAYS(file_of("no such program")));
	ck_assert_int_eq(allocated, 0);
	setenv("PATH", path, 1);
	free(path);
}
END_TEST

/* A word has at most as many bytes as a path, and a word behind a longer one is found. */
START_TEST(test_words_of_a_line)
{
	static const char between[] = " \t\r\n;&|()<>{}'\"`$";
	static char line[3 * PATH_MAX];
	const char *at;
	char *python = in_tmp("python");
	size_t len = strlen(python);
	u32 n;

	for (n = PATH_MAX - 2; n <= PATH_MAX + 1; n++) {
		memset(line, '/', n);
		memcpy(line + n - len, python, len);
		line[n] = 0;
		if (n < PATH_MAX)
			ck_assert_str_eq(SAYS(python_in(line)), line);
		else
			ck_assert_ptr_null(SAYS(python_in(line)));
		line[n] = ';';
		strcpy(line + n + 1, python);
		ck_assert_int_eq(strlen(SAYS(python_in(line))), n < PATH_MAX ? n : len);
	}
	for (at = between; *at; at++) {
		sprintf(line, "%cx%c%s%cx", *at, *at, python, *at);
		ck_assert_str_eq(SAYS(python_in(line)), python);
	}
	ck_assert_ptr_null(python_in(""));
	ck_assert_ptr_null(python_in(" ;; "));
	ck_assert_int_eq(allocated, 0);
}
END_TEST

START_TEST(test_names_of_pythons)
{
	static const char *const names[] = { "python", "python3", "python3.11", "/a/python",
					     "pythonw" };
	static const char *const others[] = { "", "pytho", "pytho3", "pythons/ab", "/python/",
					      "ipython", "Python" };
	u32 i;

	for (i = 0; i < COUNT(names); i++)
		ck_assert_msg(is_python(names[i]), "%s", names[i]);
	for (i = 0; i < COUNT(others); i++)
		ck_assert_msg(!is_python(others[i]), "%s", others[i]);
}
END_TEST

/* The hash is FNV-1a, with a byte after each text, so that "ab", "c" differs from "a", "bc". */
START_TEST(test_the_hash)
{
	const u64 basis = 0xcbf29ce484222325, prime = 0x100000001b3;

	ck_assert(hash(basis, "") == (basis ^ 0xff) * prime);
	ck_assert(hash(basis, "foobar") == (0x85944171f73967e8 ^ 0xff) * prime);
	ck_assert(hash(basis, "\xe9") == (((basis ^ 0xe9) * prime) ^ 0xff) * prime);
	ck_assert(hash(hash(basis, "ab"), "c") != hash(hash(basis, "a"), "bc"));
}
END_TEST

static __attribute__((noinline)) void fill_stack(int byte)
{
	volatile char bytes[4096];
	u32 i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)byte;
}

/* The size and the time of a file count.  Both are 0 if the file does not exist. */
START_TEST(test_the_hash_of_a_file)
{
	static const struct { const char *contents; struct timespec time; } is[] = {
		{ "", { 0, 0 } }, { "", { 1, 0 } }, { "", { 0, 1 } }, { "", { 0, 2 } },
		{ "x", { 0, 0 } }, { "xy", { 0, 0 } } };
	u64 first, second, seen[COUNT(is)];
	struct stat st;
	u32 i, k;

	fill_stack(0x55);
	first = hash_file(1, folder, "none");
	fill_stack(0xaa);
	second = hash_file(1, folder, "none");
	ck_assert(first == second);
	ck_assert(first != hash_file(2, folder, "none"));
	ck_assert(first != hash_file(1, folder, "another"));
	for (i = 0; i < COUNT(is); i++) {
		put("some", is[i].contents);
		MUST(!utimensat(AT_FDCWD, in_tmp("some"),
				(struct timespec[]){ is[i].time, is[i].time }, 0));
		MUST(!stat(in_tmp("some"), &st));
		seen[i] = hash_file(1, folder, "some");
		/* a file system may not store nanoseconds */
		for (k = 0; k < i && st.st_mtim.tv_nsec == is[i].time.tv_nsec; k++)
			ck_assert_msg(seen[i] != seen[k], "%u, %u", i, k);
	}
	ck_assert_int_eq(allocated, 0);
}
END_TEST

/* The name of the library, to be freed. */
static char *name_with(const char *cxx, char *libdir)
{
	struct setup s = { .package = in_tmp("mxnet"), .source = in_tmp("in/share/pawl"),
			   .include = in_tmp("in/include"), .libdir = libdir };

	OK(SAYS(choose_name(&s, cxx)));
	return s.built;
}

START_TEST(test_the_name_of_the_library)
{
	char compiler[16], *name, *other, *libdir = NULL;
	u32 i, zeros = 0;

	name = name_with("c++", NULL);
	release = "2";
	other = name_with("c++", NULL);
	ck_assert_str_ne(name, other);
	test_free(other);
	release = "1";
	other = name_with("c++", NULL);
	ck_assert_str_eq(name, other);
	test_free(other);
	libdir = strdup(in_tmp("in/lib"));
	other = name_with("c++", libdir);
	ck_assert_str_ne(name, other);
	test_free(other);
	test_free(name);
	free(libdir);
	/* one of 16 hashes begins with a zero */
	for (i = 0; i < 300; i++) {
		snprintf(compiler, sizeof(compiler), "%u", i);
		name = name_with(compiler, NULL);
		other = in_tmp("cache/pawl/libpawl_mxnet-");
		ck_assert(!strncmp(name, other, strlen(other)));
		ck_assert_int_eq(strspn(name + strlen(other), "0123456789abcdef"), 16);
		ck_assert_str_eq(name + strlen(other) + 16, ".so");
		zeros += name[strlen(other)] == '0';
		test_free(name);
	}
	ck_assert_uint_gt(zeros, 0);
	ck_assert_int_eq(allocated, 0);
}
END_TEST

/* New folders have all permissions that the umask leaves. */
START_TEST(test_folders_that_are_made)
{
	static const char *const made[] = { "a", "a/bc", "a/bc/d" };
	char path[PATH_MAX];
	struct stat st;
	u32 i;

	umask(0);
	strcpy(path, in_tmp("a/bc/d"));
	OK(SAYS(make_dirs(path)));
	ck_assert_str_eq(path, in_tmp("a/bc/d"));
	for (i = 0; i < COUNT(made); i++) {
		MUST(!stat(in_tmp(made[i]), &st));
		ck_assert_msg((st.st_mode & 07777) == 0777, "%s: %o", made[i], st.st_mode);
	}
	umask(027);
	strcpy(path, in_tmp("a/e"));
	OK(SAYS(make_dirs(path)));
	MUST(!stat(path, &st));
	ck_assert_int_eq(st.st_mode & 07777, 0750);
	OK(SAYS(make_dirs(path)));
	strcpy(path, in_tmp("python/x/y"));
	ck_assert_int_eq(SAYS(make_dirs(path) ? errno : 0), ENOTDIR);
	ck_assert_str_eq(path, in_tmp("python/x"));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		test_no_result_of_the_command_leaves_anything,
		test_the_file_in_which_the_library_is_built,
		test_no_process_can_be_made, test_no_stream_can_be_opened, test_no_memory,
		test_files_beside_the_program, test_the_files_of_pawl,
		test_files_that_cannot_be_read, test_programs_without_a_path,
		test_words_of_a_line, test_names_of_pythons, test_the_hash, test_the_hash_of_a_file,
		test_the_name_of_the_library, test_folders_that_are_made };
	Suite *s = suite_create("mxnet");
	TCase *tc = tcase_create("mxnet");
	size_t i;

	tcase_set_timeout(tc, 50);
	tcase_add_checked_fixture(tc, setup, teardown);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
