/* open_twice LIBMILLPOND.SO DIRECTORY: the plugin opened from two paths in one process. Each file
 * is a plugin of its own, with runtimes of its own; opening a path again gives the plugin that is
 * there; dlclose unmaps nothing. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "millpond/plugin.h"
#include "millpond/report.h"

static millpond_status status = {.header = {sizeof(millpond_status), MILLPOND_TYPE_STATUS}};

static void demand(int truth, const char* what) {
  if (truth) return;
  fprintf(stderr, "open_twice: %s: %s\n", what, status.message);
  exit(1);
}

static void copy_file(const char* from, const char* to) {
  FILE* source = fopen(from, "rb");
  FILE* target = fopen(to, "wb");
  static char bytes[1 << 16];
  size_t count = 0;
  demand(source != NULL && target != NULL, "copying the plugin");
  while ((count = fread(bytes, 1, sizeof(bytes), source)) > 0) {
    demand(fwrite(bytes, 1, count, target) == count, "copying the plugin");
  }
  demand(ferror(source) == 0, "reading the plugin");
  fclose(source);
  demand(fclose(target) == 0, "closing the copy");
}

static const millpond_table_v1* open_plugin(const char* path, void** library) {
  millpond_open_v1_fn open_v1;
  millpond_plugin_identity_fn identity;
  *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (*library == NULL) fprintf(stderr, "%s\n", dlerror());
  demand(*library != NULL, "dlopen");
  *(void**)&identity = dlsym(*library, "millpond_plugin_identity");
  *(void**)&open_v1 = dlsym(*library, "millpond_open_v1");
  demand(identity != NULL && open_v1 != NULL, "dlsym");
  demand(identity()->magic == MILLPOND_MAGIC, "magic");
  const millpond_table_v1* table = open_v1(MILLPOND_ABI_MINOR, &status);
  demand(table != NULL, "millpond_open_v1");
  demand(table->header.type == MILLPOND_TYPE_TABLE_V1, "the table's type");
  demand(table->header.size >= sizeof(*table), "the table's size");
  demand(table->minor == MILLPOND_ABI_MINOR, "the table's minor");
  return table;
}

static millpond_str str(const char* text) { return (millpond_str){text, strlen(text)}; }

int main(int argc, char** argv) {
  demand(argc == 3, "usage: open_twice LIBMILLPOND.SO DIRECTORY");
  char path[4096], options[4200];
  snprintf(path, sizeof(path), "%s/libmillpond_copy.so", argv[2]);
  copy_file(argv[1], path);
  snprintf(options, sizeof(options), "{\"scratch\": \"%s\"}", argv[2]);

  void *first, *second, *again;
  const millpond_table_v1* tables[2] = {open_plugin(argv[1], &first), open_plugin(path, &second)};
  demand(first != second && tables[0] != tables[1], "two files gave one plugin");
  demand(open_plugin(argv[1], &again) == tables[0], "one file gave two plugins");

  millpond_runtime* runtimes[2] = {NULL, NULL};
  millpond_store* stores[2] = {NULL, NULL};
  for (int i = 0; i < 2; ++i) {
    const millpond_host_api host = {.header = {sizeof(host), MILLPOND_TYPE_HOST_API}};
    demand(tables[i]->runtime_create(&host, str(options), &runtimes[i], &status) == MILLPOND_OK,
           "runtime_create");
    demand(
        tables[i]->create(runtimes[i], str("rank00000/opt0_0"), &stores[i], &status) == MILLPOND_OK,
        "create");
  }
  for (int i = 0; i < 2; ++i) {
    /* Closing is allowed and does nothing to the code: the calls below still work. */
    demand(dlclose(i == 0 ? first : second) == 0, "dlclose");
    const millpond_ext_report* report =
        tables[i]->get_extension(runtimes[i], str(MILLPOND_EXT_REPORT_1));
    millpond_runtime_figures figures = {.header = {sizeof(figures), MILLPOND_TYPE_RUNTIME_FIGURES}};
    demand(report != NULL, "report/1");
    demand(report->runtime(runtimes[i], &figures, &status) == MILLPOND_OK, "report/1 runtime");
    demand(tables[i]->get_extension(runtimes[i], str("no such/1")) == NULL,
           "an extension that is not there");
    demand(tables[i]->destroy(stores[i], &status) == MILLPOND_OK, "destroy");
    demand(tables[i]->runtime_destroy(runtimes[i], &status) == MILLPOND_OK, "runtime_destroy");
  }
  /* Both are still mapped after the last dlclose. */
  dlclose(again);
  demand(open_plugin(argv[1], &again) == tables[0], "the plugin was unloaded");
  puts("two plugins in one process");
  return 0;
}
