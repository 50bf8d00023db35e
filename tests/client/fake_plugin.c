/* A shared object that looks like a plugin but for one thing, chosen when it is compiled. Whatever
 * the client refuses it must refuse before it calls anything else: millpond_open_v1 aborts where
 * the identity is wrong. */
#include <stdlib.h>
#include <string.h>

#include "millpond/plugin.h"

#ifndef FAKE_MAGIC
#define FAKE_MAGIC MILLPOND_MAGIC
#endif
#ifndef FAKE_TYPE
#define FAKE_TYPE MILLPOND_TYPE_IDENTITY
#endif
#ifndef FAKE_SIZE
#define FAKE_SIZE sizeof(millpond_identity)
#endif
#ifndef FAKE_POINTER
#define FAKE_POINTER 8
#endif
#ifndef FAKE_ENDIAN
#define FAKE_ENDIAN 1
#endif
#ifndef FAKE_MAJOR
#define FAKE_MAJOR MILLPOND_ABI_MAJOR
#endif

#ifndef FAKE_NO_IDENTITY
MILLPOND_EXPORT const millpond_identity* millpond_plugin_identity(void) {
  static const millpond_identity identity = {.magic = FAKE_MAGIC,
                                             .header = {FAKE_SIZE, FAKE_TYPE},
                                             .major_min = FAKE_MAJOR,
                                             .major_max = FAKE_MAJOR,
                                             .pointer_bytes = FAKE_POINTER,
                                             .little_endian = FAKE_ENDIAN,
                                             .name = "fake",
                                             .version = "0",
                                             .build_id = "fake"};
  return &identity;
}
#endif

#ifndef FAKE_NO_OPEN
MILLPOND_EXPORT const millpond_table_v1* millpond_open_v1(uint32_t host_minor,
                                                          millpond_status* status) {
#if defined(FAKE_DECLINES)
  (void)host_minor;
  status->code = MILLPOND_E_VERSION;
  status->wanted = 7;
  status->got = 0;
  strcpy(status->field, "host_minor");
  strcpy(status->message, "open: this plugin is for hosts of minor 7 and later");
  return NULL;
#elif defined(FAKE_TABLE_SIZE)
  (void)status;
  static millpond_table_v1 table = {.header = {FAKE_TABLE_SIZE, MILLPOND_TYPE_TABLE_V1}};
  table.minor = host_minor;
  return &table;
#elif defined(FAKE_MINOR_AHEAD)
  (void)status;
  static millpond_table_v1 table = {.header = {sizeof(millpond_table_v1), MILLPOND_TYPE_TABLE_V1}};
  table.minor = host_minor + 1;
  return &table;
#else
  (void)host_minor;
  (void)status;
  abort();
#endif
}
#endif
