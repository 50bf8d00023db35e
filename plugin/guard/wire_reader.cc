#include "plugin/guard/wire_reader.h"

#include <fmt/format.h>

#include <protozero/exception.hpp>
#include <protozero/varint.hpp>

#include "millpond/error.hpp"
#include "plugin/guard/utf8.h"

namespace millpond::plugin {
namespace {

using protozero::pbf_wire_type;

// Tags and lengths have 32 bits, hence five bytes at most; the official library refuses padded ones
// that are longer, so that two readers never see different messages.
constexpr std::ptrdiff_t kKeyBytes = 5;

constexpr char kRemedy[] =
    "Serialize millpond.v1.HostProfile with the Protocol Buffers library, and hand over all of its "
    "bytes";

}  // namespace

WireReader::WireReader(const char* name, const void* bytes, std::uint64_t size)
    : WireReader(name, protozero::data_view(static_cast<const char*>(bytes), size),
                 static_cast<const char*>(bytes)) {}

WireReader::WireReader(const char* name, protozero::data_view bytes, const char* origin)
    : reader_(bytes), name_(name), origin_(origin), field_(bytes.data()) {}

std::uint64_t WireReader::offset() const { return static_cast<std::uint64_t>(field_ - origin_); }

void WireReader::fail(const std::string& reason, std::uint64_t wanted, std::uint64_t got) const {
  throw Error(MILLPOND_E_ARGUMENT, "read profile", fmt::format("{}: {}", name_, reason))
      .field("bind_args.profile")
      .at(offset())
      .want(wanted, got)
      .remedy(kRemedy);
}

template <typename Read>
auto WireReader::guarded(Read read) {
  try {
    return read();
  } catch (const protozero::end_of_buffer_exception&) {
    fail("the bytes end inside a field", kNoValue, kNoValue);
  } catch (const protozero::varint_too_long_exception&) {
    fail("an integer has more than ten bytes", kNoValue, kNoValue);
  } catch (const protozero::invalid_tag_exception&) {
    fail("a field has a number that Protocol Buffers reserves", kNoValue, kNoValue);
  } catch (const protozero::unknown_pbf_wire_type_exception&) {
    fail("a field has a wire type that proto3 does not use", kNoValue, kNoValue);
  }
}

bool WireReader::next() {
  return guarded([this] {
    if (pending_) reader_.skip();
    pending_ = false;
    const protozero::data_view rest = reader_.data();
    field_ = rest.data();
    if (rest.size() == 0) return false;

    // protozero keeps the low 32 bits of tags and lengths; a value above that is hostile, not
    // short.
    const char* at = rest.data();
    const char* end = rest.data() + rest.size();
    const std::uint64_t key = protozero::decode_varint(&at, end);
    if (key > UINT32_MAX) fail("a field's tag is too large", UINT32_MAX, key);
    expect_key_size(at - rest.data(), "tag");
    reader_.next();
    tag_ = reader_.tag();
    pending_ = true;
    if (reader_.wire_type() == pbf_wire_type::length_delimited) {
      const char* length_begin = at;
      const std::uint64_t length = protozero::decode_varint(&at, end);
      const auto left = static_cast<std::uint64_t>(end - at);
      if (length > left) fail(fmt::format("field {} is cut off", tag_), length, left);
      expect_key_size(at - length_begin, "length");
    }
    return true;
  });
}

void WireReader::expect_key_size(std::ptrdiff_t bytes, const char* what) const {
  if (bytes > kKeyBytes)
    fail(fmt::format("a field's {} has too many bytes", what), kKeyBytes,
         static_cast<std::uint64_t>(bytes));
}

void WireReader::expect(pbf_wire_type type) {
  pending_ = false;
  if (reader_.wire_type() != type)
    fail(fmt::format("field {} has the wrong wire type", tag_), static_cast<std::uint64_t>(type),
         static_cast<std::uint64_t>(reader_.wire_type()));
}

std::uint64_t WireReader::varint() {
  expect(pbf_wire_type::varint);
  return guarded([this] { return reader_.get_uint64(); });
}

std::string WireReader::string(std::uint64_t cap) {
  expect(pbf_wire_type::length_delimited);
  const protozero::data_view view = guarded([this] { return reader_.get_view(); });
  if (view.size() > cap) fail(fmt::format("field {} is too long a string", tag_), cap, view.size());
  const std::string_view text(view.data(), view.size());
  const std::size_t valid = valid_utf8(text);
  if (valid != text.size()) fail(fmt::format("field {} is not UTF-8", tag_), text.size(), valid);
  return std::string(text);
}

WireReader WireReader::message(const char* name) {
  expect(pbf_wire_type::length_delimited);
  return {name, guarded([this] { return reader_.get_view(); }), origin_};
}

void WireReader::append_varints(std::vector<std::uint64_t>& values, std::uint64_t cap) {
  const auto append = [&](std::uint64_t value) {
    if (values.size() >= cap)
      fail(fmt::format("field {} has too many values", tag_), cap, values.size() + 1);
    values.push_back(value);
  };
  if (reader_.wire_type() == pbf_wire_type::varint) return append(varint());
  expect(pbf_wire_type::length_delimited);
  guarded([&] {
    for (const std::uint64_t value : reader_.get_packed_uint64()) append(value);
  });
}

}  // namespace millpond::plugin
