// SPDX-License-Identifier: Apache-2.0
/*
 * The report as one page for a browser, without scripts and without a network: the figures with
 * their rounds over time, bars of each suite, and curves of percentiles, as SVG.  The JSON of
 * --output-json is in the element with the id data.
 */

#include <stdlib.h>
#include <string.h>

#include "suite.h"

#define CHART_W		760
#define CHART_H		340
#define LEFT		70		/* of the axes */
#define RIGHT		10
#define TOP		10
#define BOTTOM		40
#define LINE_W		150		/* the rounds of a figure */
#define LINE_H		22
#define BAR_W		140
#define STEPS		8		/* of a curve, per power of ten */

static const char head[] =
"<!DOCTYPE html>\n"
"<html lang=\"en\"><head><meta charset=\"utf-8\"><title>pawl bench</title>\n"
"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
"<meta name=\"viewport\" content=\"width=device-width\">\n"
"<style>\n"
"body { font: 15px/1.45 system-ui, sans-serif; max-width: 76em; margin: 2em auto; padding: 0 1em;\n"
"  color: #1d2630; background: #fff }\n"
"h1, h2 { line-height: 1.2 }\n"
"table { border-collapse: collapse; width: 100% }\n"
"th, td { text-align: left; padding: .15em .6em; border-bottom: 1px solid #e3e7eb; vertical-align: middle }\n"
"td:first-child { white-space: nowrap }\n"
"td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }\n"
"td.w { color: #5b6875; font-size: 13px }\n"
".warn { background: #fff4de; border-left: 4px solid #e69f00; padding: .4em .8em; margin: .3em 0 }\n"
"svg { display: block } svg text { font: 12px system-ui, sans-serif; fill: #5b6875 }\n"
".key span { margin-right: 1.2em; white-space: nowrap } .key b { font-weight: 900 }\n"
"</style></head><body>\n";

/* Colours that colour-blind readers can tell apart. */
static const char *const colours[] = {
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f",
};

#define COLOURS	(sizeof(colours) / sizeof(colours[0]))

static void put_text(FILE *f, const char *s)
{
	for (; *s; s++) {
		if (*s == '<')
			fputs("&lt;", f);
		else if (*s == '&')
			fputs("&amp;", f);
		else
			fputc(*s, f);
	}
}

static const char *colour(unsigned int i)
{
	return colours[i % COLOURS];
}

static bool same_suite(const struct figure *a, const struct figure *b)
{
	size_t n = strcspn(a->name, "/");

	return !strncmp(a->name, b->name, n + 1);
}

/* --- the table of a suite ------------------------------------------------------------------ */

/* The rounds from left to right; 0 is at the bottom. */
static void put_rounds(FILE *f, const struct figure *g, double most)
{
	unsigned int i;

	fprintf(f, "<svg width=\"%d\" height=\"%d\"><polyline fill=\"none\" stroke=\"%s\" "
		"stroke-width=\"1.5\" points=\"", LINE_W, LINE_H, colours[0]);
	for (i = 0; i < g->rounds; i++) {
		double x = g->rounds > 1 ? (LINE_W - 4.0) * i / (g->rounds - 1) : LINE_W / 2.0;

		fprintf(f, "%.1f,%.1f ", x + 2,
			LINE_H - 2 - (LINE_H - 4) * (most > 0 ? g->round[i] / most : 0));
	}
	fprintf(f, "\"/></svg>");
}

static void put_row(FILE *f, const struct figure *g, double greatest)
{
	double median = median_of(g->round, g->rounds), *sorted;
	char a[32], b[32], c[32];

	sorted = bench_alloc(g->rounds, sizeof(*sorted));
	sort_values(sorted, g->round, g->rounds);
	fprintf(f, "<tr><td>");
	put_text(f, g->name);
	fprintf(f, "%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td>",
		bench_unsteady(g) ? " ~" : "", bench_value(g->unit, median, a, sizeof(a)),
		bench_value(g->unit, sorted[0], b, sizeof(b)),
		bench_value(g->unit, sorted[g->rounds - 1], c, sizeof(c)));
	fprintf(f, "<svg width=\"%d\" height=\"14\"><rect width=\"%.1f\" height=\"14\" "
		"fill=\"%s\"/></svg></td><td>", BAR_W,
		greatest > 0 ? fmax(1, BAR_W * median / greatest) : 1, colours[5]);
	put_rounds(f, g, sorted[g->rounds - 1]);
	fprintf(f, "</td><td class=\"w\">");
	put_text(f, g->what);
	fprintf(f, "</td></tr>\n");
	free(sorted);
}

static void put_table(FILE *f, const struct plan *p, unsigned int first, unsigned int end)
{
	double greatest[3] = { 0 };
	unsigned int i;

	fprintf(f, "<table><tr><th>figure</th><th class=\"n\">median</th><th class=\"n\">least</th>"
		"<th class=\"n\">most</th><th>beside the others</th><th>rounds in turn</th><th></th>"
		"</tr>\n");
	for (i = first; i < end; i++)
		if (p->figures[i]->rounds)
			greatest[p->figures[i]->unit] = fmax(greatest[p->figures[i]->unit],
				median_of(p->figures[i]->round, p->figures[i]->rounds));
	for (i = first; i < end; i++)
		if (p->figures[i]->rounds)
			put_row(f, p->figures[i], greatest[p->figures[i]->unit]);
	fprintf(f, "</table>\n");
}

/* --- curves of percentiles ------------------------------------------------------------------- */

struct axes {
	double x, y0, y1;		/* powers of ten: of samples per sample beyond, of ns */
};

static double at_x(const struct axes *a, double power)
{
	return LEFT + (CHART_W - LEFT - RIGHT) * power / a->x;
}

static double at_y(const struct axes *a, double ns)
{
	double part = (log10(fmax(ns, 1)) - a->y0) / (a->y1 - a->y0);

	return CHART_H - BOTTOM - (CHART_H - TOP - BOTTOM) * part;
}

/* The greatest power of ten for which enough samples are beyond. */
static double carried(const struct hist *h)
{
	return h->count > BEYOND ? log10((double)h->count / BEYOND) : 0;
}

static double value_at(const struct hist *h, double power)
{
	uint64_t seen, rank = (uint64_t)ceil((double)h->count * (1 - pow(10, -power)));

	return (double)hist_rank(h, rank ? rank : 1, &seen);
}

static void put_axes(FILE *f, const struct axes *a)
{
	static const struct {
		const char *name;
		double power;
	} at[] = {
		{ "min", 0 }, { "p50", M_LN2 / M_LN10 }, { "p90", 1 }, { "p99", 2 }, { "p99.9", 3 },
		{ "p99.99", 4 }, { "p99.999", 5 }, { "p99.9999", 6 },
	};
	char text[32];
	int i;

	for (i = 0; i < (int)(sizeof(at) / sizeof(at[0])) && at[i].power <= a->x; i++)
		fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#e3e7eb\"/>"
			"<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			at_x(a, at[i].power), at_x(a, at[i].power), TOP, CHART_H - BOTTOM,
			at_x(a, at[i].power), CHART_H - BOTTOM + 18, at[i].name);
	for (i = (int)a->y0; i <= (int)a->y1; i++) {
		double ns = pow(10, i), y = at_y(a, ns);

		fprintf(f, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e3e7eb\"/>"
			"<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT,
			CHART_W - RIGHT, y, y, LEFT - 6, y + 4,
			bench_value(UNIT_NS, ns, text, sizeof(text)));
	}
}

static void put_curve(FILE *f, const struct axes *a, const struct hist *h, const char *stroke)
{
	double most = carried(h);
	int i, n = (int)floor(most * STEPS);

	fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", stroke);
	for (i = 0; i <= n; i++)
		fprintf(f, "%.1f,%.1f ", at_x(a, (double)i / STEPS),
			at_y(a, value_at(h, (double)i / STEPS)));
	fprintf(f, "%.1f,%.1f\"/>\n", at_x(a, most), at_y(a, value_at(h, most)));
}

/* The figures with single times, as far as their samples carry. */
static void put_curves(FILE *f, const struct plan *p, unsigned int first, unsigned int end)
{
	struct axes a = { 1, 99, 0 };
	unsigned int i, n = 0;

	for (i = first; i < end; i++) {
		const struct hist *h = p->figures[i]->hist;

		if (!h || !h->count)
			continue;
		n++;
		a.x = fmax(a.x, carried(h));
		a.y0 = fmin(a.y0, floor(log10(fmax((double)h->min, 1))));
		a.y1 = fmax(a.y1, ceil(log10(fmax(value_at(h, carried(h)), 10))));
	}
	if (!n)
		return;
	a.y1 = fmax(a.y1, a.y0 + 1);
	fprintf(f, "<h3>Single times</h3><svg width=\"%d\" height=\"%d\" role=\"img\" "
		"aria-label=\"percentiles of single times\">\n", CHART_W, CHART_H);
	put_axes(f, &a);
	for (i = first, n = 0; i < end; i++)
		if (p->figures[i]->hist && p->figures[i]->hist->count)
			put_curve(f, &a, p->figures[i]->hist, colour(n++));
	fprintf(f, "</svg><p class=\"key\">");
	for (i = first, n = 0; i < end; i++) {
		if (!p->figures[i]->hist || !p->figures[i]->hist->count)
			continue;
		fprintf(f, "<span><b style=\"color:%s\">&#8212;</b> ", colour(n++));
		put_text(f, p->figures[i]->name);
		fprintf(f, " (%llu)</span> ", (unsigned long long)p->figures[i]->hist->count);
	}
	fprintf(f, "</p><p>A curve ends where fewer than %u samples are beyond.</p>\n", BEYOND);
}

/* --- the page -------------------------------------------------------------------------------- */

/* "<" would end the element, or begin a comment. */
static bool put_json(FILE *f, json_t *root)
{
	char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9)), *c;

	if (!text)
		return false;
	fputs("<script type=\"application/json\" id=\"data\">", f);
	for (c = text; *c; c++) {
		if (*c == '<')
			fputs("\\u003c", f);
		else
			fputc(*c, f);
	}
	fputs("</script>\n", f);
	free(text);
	return true;
}

int bench_report_html(const struct result *r, const char *file)
{
	const struct plan *p = r->plan;
	json_t *root = bench_report_root(r), *warnings = json_object_get(root, "warnings");
	json_t *h = json_object_get(root, "host"), *one;
	FILE *f = fopen(file, "we");
	unsigned int i, end;
	int rc = -1;
	size_t k;

	if (f && root) {
		fputs(head, f);
		fprintf(f, "<h1>pawl bench</h1>\n<p>pawl %s on ", pawl_version());
		put_text(f, json_string_value(json_object_get(h, "cpu")));
		fprintf(f, ", CPUs %s, Linux ", json_string_value(json_object_get(h, "cpu_list")));
		put_text(f, json_string_value(json_object_get(h, "kernel")));
		fprintf(f, "; %u of %u rounds, %.1f s, seed %llu</p>\n", r->rounds, p->o->rounds,
			r->seconds, (unsigned long long)p->o->seed);
		json_array_foreach(warnings, k, one) {
			fprintf(f, "<p class=\"warn\">");
			put_text(f, json_string_value(one));
			fprintf(f, "</p>\n");
		}
		for (i = 0; i < p->nfigures; i = end) {
			for (end = i; end < p->nfigures &&
			     same_suite(p->figures[i], p->figures[end]); end++)
				;
			fprintf(f, "<h2>%.*s</h2>\n", (int)strcspn(p->figures[i]->name, "/"),
				p->figures[i]->name);
			put_table(f, p, i, end);
			put_curves(f, p, i, end);
		}
		rc = put_json(f, root) ? 0 : -1;
		fputs("</body></html>\n", f);
	}
	if (f)
		rc = ferror(f) || fclose(f) ? -1 : rc;
	json_decref(root);
	if (rc)
		perror(file);
	return rc;
}
