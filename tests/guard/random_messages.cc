#include "tests/guard/random_messages.h"

#include <google/protobuf/descriptor.h>

#include <string>

namespace millpond::tests {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::uint64_t any_integer(std::mt19937_64& random) {
  const std::uint64_t bits = random() % 65;
  return bits == 0 ? 0 : random() >> (64 - bits);
}

std::string any_string(std::mt19937_64& random) {
  static const std::string kPieces[] = {"a", "weight", ".", "0", "é", "水", "𝛽", " ", "\n"};
  std::string text;
  for (std::uint64_t n = random() % 12; n > 0; --n) text += kPieces[random() % std::size(kPieces)];
  return text;
}

void fill_one(Message& message, const FieldDescriptor* field, std::mt19937_64& random) {
  const auto& reflection = *message.GetReflection();
  const bool many = field->is_repeated();
  const std::uint64_t number = any_integer(random);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT64:
      many ? reflection.AddUInt64(&message, field, number)
           : reflection.SetUInt64(&message, field, number);
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      reflection.SetUInt32(&message, field, static_cast<std::uint32_t>(number));
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      reflection.SetInt32(&message, field, static_cast<std::int32_t>(number));
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      reflection.SetEnumValue(&message, field,
                              random() % 8 == 0 ? static_cast<std::int32_t>(number)
                                                : static_cast<std::int32_t>(random() % 4));
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(&message, field, any_string(random));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection.SetDouble(&message, field, static_cast<double>(number) / 3);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection.SetBool(&message, field, random() % 2 == 0);
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      fill_at_random(many ? *reflection.AddMessage(&message, field)
                          : *reflection.MutableMessage(&message, field),
                     random);
      break;
    default:
      break;
  }
}

}  // namespace

void fill_at_random(Message& message, std::mt19937_64& random) {
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* field = descriptor.field(i);
    const std::uint64_t times = field->is_repeated() ? random() % 5 : random() % 8 != 0;
    for (std::uint64_t n = 0; n < times; ++n) fill_one(message, field, random);
  }
}

}  // namespace millpond::tests
