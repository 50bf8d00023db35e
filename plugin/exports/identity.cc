#include "plugin/exports/identity.h"

#include "build_facts.h"

namespace millpond::plugin {
namespace {

// The compiled handshake.proto: a serialized google.protobuf.FileDescriptorSet.
constexpr unsigned char kDescriptorSet[] = {
#include "descriptor.inc"
};

// The digest is the golden text's, not this build's own view: a test holds the two together.
constinit const millpond_identity kIdentity = {
    MILLPOND_MAGIC,
    {sizeof(millpond_identity), MILLPOND_TYPE_IDENTITY},
    MILLPOND_ABI_MAJOR,
    MILLPOND_ABI_MAJOR,
    MILLPOND_ABI_MINOR,
    sizeof(void*),
    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
    {0, 0},
    MILLPOND_LAYOUT_DIGEST,
    "millpond",
    MILLPOND_VERSION_TEXT,
    MILLPOND_BUILD_ID,
    kDescriptorSet,
    sizeof(kDescriptorSet),
};

}  // namespace

const millpond_identity& identity() { return kIdentity; }

}  // namespace millpond::plugin
