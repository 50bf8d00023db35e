// The descriptor set that travels in the plugin, read by the official library: it is the whole
// handshake, and its fields are those of abi/handshake.golden (numbers are never used again).
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "millpond/handshake.pb.h"
#include "plugin/exports/identity.h"

namespace {

namespace pb = google::protobuf;

pb::FileDescriptorSet embedded() {
  const millpond_identity& identity = millpond::plugin::identity();
  pb::FileDescriptorSet set;
  EXPECT_TRUE(
      set.ParseFromArray(identity.descriptor_set, static_cast<int>(identity.descriptor_set_bytes)));
  return set;
}

std::string listing(const pb::FileDescriptor& file) {
  std::ostringstream text;
  for (int i = 0; i < file.message_type_count(); ++i) {
    const pb::Descriptor& message = *file.message_type(i);
    text << "message " << message.name() << "\n";
    for (int j = 0; j < message.field_count(); ++j) {
      const pb::FieldDescriptor& field = *message.field(j);
      text << "  " << field.number() << " " << (field.is_repeated() ? "repeated " : "")
           << field.type_name();
      if (field.message_type() != nullptr) text << " " << field.message_type()->name();
      if (field.enum_type() != nullptr) text << " " << field.enum_type()->name();
      text << " " << field.name() << "\n";
    }
  }
  for (int i = 0; i < file.enum_type_count(); ++i) {
    const pb::EnumDescriptor& type = *file.enum_type(i);
    text << "enum " << type.name() << "\n";
    for (int j = 0; j < type.value_count(); ++j) {
      text << "  " << type.value(j)->number() << " " << type.value(j)->name() << "\n";
    }
  }
  return text.str();
}

TEST(DescriptorSet, is_self_contained_and_equals_the_golden_text) {
  const pb::FileDescriptorSet set = embedded();
  ASSERT_EQ(set.file_size(), 1);
  pb::DescriptorPool pool;
  const pb::FileDescriptor* file = pool.BuildFile(set.file(0));
  ASSERT_NE(file, nullptr);
  std::ifstream golden(std::string(MILLPOND_SOURCE_ROOT) + "/abi/handshake.golden");
  std::ostringstream expected;
  expected << golden.rdbuf();
  EXPECT_EQ(expected.str(), listing(*file));
  EXPECT_EQ(listing(*millpond::v1::HostProfile::descriptor()->file()), listing(*file));
}

}  // namespace
