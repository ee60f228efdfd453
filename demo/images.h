/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of digits.img.  The head of demo/train/digits.py, which writes the file, describes
 * the format and the reasons for it.
 */
#ifndef PAWL_IMAGES_H
#define PAWL_IMAGES_H

#include <stddef.h>
#include <stdint.h>

struct image_set {
	uint32_t count;		/* images, at least 1 */
	uint32_t held_out;	/* how many of them were not used for training */
	uint32_t height, width;
	uint32_t size;		/* height * width: a model's in_dim */
	uint32_t max_value;	/* of a pixel; 0 is paper */
	uint32_t classes;	/* labels are below it: a model's out_dim */
	uint8_t *label;		/* [count] */
	uint8_t *split;		/* [count] 0: trained on, 1: held out */
	uint8_t *pixel;		/* [count][height][width] */
};

/*
 * Read a whole file, or a file in memory (name is for messages only).  Returns 0, or a
 * negative errno with the file, the offset and the reason in err (may be NULL).
 * images_parse() copies the data that it keeps.  Any thread; *out is constant afterwards.
 */
int images_load(const char *path, struct image_set **out, char *err, size_t errlen);
int images_parse(const void *data, size_t len, const char *name,
		 struct image_set **out, char *err, size_t errlen);
/* NULL is allowed. */
void images_free(struct image_set *set);

/* The input of a network for image i < count: size floats, 0.0 to 1.0. */
void images_input(const struct image_set *set, uint32_t i, float *out);

#endif
