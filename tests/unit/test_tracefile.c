// SPDX-License-Identifier: Apache-2.0
/* core/tracefile.c: PAWL_TRACE, and which files it makes. */
#include "util.h"
#include "child.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char folder[64], path[8192];

/* Create and destroy n engines with PAWL_TRACE=value; returns what they wrote to stderr. */
static const char *traced(const char *value, const char *events, int n)
{
	static char said[16384];
	int before = dup(STDERR_FILENO), fd[2], i;
	struct pawl_engine *e[2];
	ssize_t len;

	MUST(!pipe2(fd, O_NONBLOCK) && before >= 0 && dup2(fd[1], STDERR_FILENO) == STDERR_FILENO);
	MUST(!setenv("PAWL_TRACE", value, 1));
	if (events)
		MUST(!setenv("PAWL_TRACE_EVENTS", events, 1));
	for (i = 0; i < n; i++) {
		e[i] = engine(PAWL_PER_DEVICE, 1);
		MUST(!push_write(e[i], nothing, NULL, var_new(e[i])));
	}
	for (i = 0; i < n; i++)
		MUST(!pawl_engine_destroy(e[i]));
	MUST(!unsetenv("PAWL_TRACE") && !unsetenv("PAWL_TRACE_EVENTS"));
	MUST(dup2(before, STDERR_FILENO) == STDERR_FILENO);
	len = read(fd[0], said, sizeof(said) - 1);
	said[len > 0 ? len : 0] = 0;
	close(before);
	close(fd[0]);
	close(fd[1]);
	return said;
}

/* Remove the files of the folder that begin so and are traces.  Returns their number. */
static int traces(const char *begin)
{
	DIR *d = opendir(folder);
	struct dirent *f;
	struct stat st;
	char name[400];
	int n = 0;

	MUST(d);
	while ((f = readdir(d))) {
		if (strncmp(f->d_name, begin, strlen(begin)) || *f->d_name == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", folder, f->d_name);
		MUST(!stat(name, &st) && (st.st_mode & 0777) == 0600 && !unlink(name));
		n += st.st_size > 0;
	}
	closedir(d);
	return n;
}

START_TEST(test_which_files_are_written)
{
	static const struct {
		const char *name, *events;
		int engines, files;
	} row[] = {
		{ "t.json", NULL, 1, 1 }, { "t.json", "64", 2, 2 }, { "t", "0", 2, 2 },
		{ "t.a.json", "999999999", 2, 2 }, { "t.json", "x", 1, 1 }, { "", NULL, 1, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(row); i++) {
		snprintf(path, sizeof(path), "%s%s%s", *row[i].name ? folder : "",
			 *row[i].name ? "/" : "", row[i].name);
		ck_assert_str_eq(traced(path, row[i].events, row[i].engines), "");
		ck_assert_int_eq(traces("t"), row[i].files);
	}
}
END_TEST

/* What a file that cannot be made or written says; the engine works. */
START_TEST(test_what_is_said_of_a_file_that_fails)
{
	static char longest[4200];
	static const struct {
		const char *name, *says;
	} row[] = {
		{ "/none/t.json", "No such file or directory; the engine is not traced" },
		{ longest, "File name too long; the engine is not traced" },
	};
	struct rlimit most;
	size_t i;

	memset(longest, '/', sizeof(longest) - 1);
	for (i = 0; i < ARRAY_SIZE(row); i++) {
		snprintf(path, sizeof(path), "%s%s", folder, row[i].name);
		ck_assert_ptr_nonnull(strstr(traced(path, NULL, 1), row[i].says));
	}
	/* The first file exists, and the name of the second one is too long. */
	memset(path, '/', sizeof(path));
	snprintf(path + 4094 - strlen(folder) - 2, 300, "%s/t", folder);
	ck_assert_str_eq(traced(path, NULL, 1), "");
	ck_assert_ptr_nonnull(strstr(traced(path, NULL, 1), "File name too long"));
	ck_assert_int_eq(traces("t"), 1);
	/* A file that takes nothing. */
	snprintf(path, sizeof(path), "%s/t", folder);
	MUST(!getrlimit(RLIMIT_FSIZE, &most) && signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	MUST(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 0, most.rlim_max }));
	ck_assert_ptr_nonnull(strstr(traced(path, NULL, 1), "File too large"));
	MUST(!setrlimit(RLIMIT_FSIZE, &most));
	ck_assert_int_eq(traces("t"), 0);
}
END_TEST

/* An engine that the program leaves is traced up to its end; a child has no part in it. */
START_TEST(test_a_program_that_ends_without_destroying)
{
	struct pawl_engine *e;
	pid_t pid = child_fork();

	if (!pid) {
		snprintf(path, sizeof(path), "%s/t.json", folder);
		MUST(!setenv("PAWL_TRACE", path, 1));
		MUST(!pawl_engine_create(NULL, &e) && !pawl_engine_create(NULL, &e));
		pid = child_fork();
		if (!pid)
			exit(0);
		MUST(!child_wait(pid));
		exit(0);
	}
	ck_assert_int_eq(child_wait(pid), 0);
	ck_assert_int_eq(traces("t"), 2);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tracefile");
	TCase *t = tcase_create("tracefile");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_which_files_are_written);
	tcase_add_test(t, test_what_is_said_of_a_file_that_fails);
	tcase_add_test(t, test_a_program_that_ends_without_destroying);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	int rc;

	strcpy(folder, "/tmp/pawl-tracefile.XXXXXX");
	MUST(mkdtemp(folder));
	rc = suite_run(suite());
	MUST(!rmdir(folder));
	return rc;
}
