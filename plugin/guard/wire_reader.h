// protozero made strict for bytes that nobody vouches for: every failure is an Error(E_ARGUMENT) of
// field "bind_args.profile" with the byte offset. Nothing is allocated but the strings asked for.
#ifndef MILLPOND_PLUGIN_GUARD_WIRE_READER_H_
#define MILLPOND_PLUGIN_GUARD_WIRE_READER_H_

#include <cstddef>
#include <cstdint>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

namespace millpond::plugin {

// One message. A message inside it is read by a WireReader of its own, so reading never recurses
// deeper than the schema. Fields that the caller does not know are skipped by the next call of
// next().
class WireReader {
 public:
  // `name` is the message's in handshake.proto; static.
  WireReader(const char* name, const void* bytes, std::uint64_t size);

  bool next();  // to the next field; false at the end
  std::uint32_t tag() const { return tag_; }

  // The present field's value, once. The wrong wire type for it is an error: its number is known,
  // so skipping it could hide what the host declares.
  std::uint64_t varint();
  std::string string(std::uint64_t cap);
  WireReader message(const char* name);
  // A repeated integer in either of its encodings, packed or one by one.
  void append_varints(std::vector<std::uint64_t>& values, std::uint64_t cap);

  // For what only the caller can see: too many of something.
  [[noreturn]] void fail(const std::string& reason, std::uint64_t wanted, std::uint64_t got) const;

 private:
  WireReader(const char* name, protozero::data_view bytes, const char* origin);
  template <typename Read>
  auto guarded(Read read);
  void expect(protozero::pbf_wire_type type);
  void expect_key_size(std::ptrdiff_t bytes, const char* what) const;
  std::uint64_t offset() const;

  protozero::pbf_reader reader_;
  const char* name_;
  const char* origin_;  // first byte of the outermost message
  const char* field_;   // first byte of the present field
  std::uint32_t tag_ = 0;
  bool pending_ = false;  // the present field has not been read
};

}  // namespace millpond::plugin

#endif  // MILLPOND_PLUGIN_GUARD_WIRE_READER_H_
