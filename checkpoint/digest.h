// XXH3-128 of bytes as 32 lower-case hexadecimal digits, high half first (xxHash's canonical form):
// what manifests and commits say about whole files.
#ifndef MILLPOND_CHECKPOINT_DIGEST_H_
#define MILLPOND_CHECKPOINT_DIGEST_H_

#include <string>
#include <string_view>

namespace millpond::checkpoint {

std::string digest(std::string_view bytes);
// 32 lower-case hexadecimal digits, as digests and save ids have.
bool is_hex32(std::string_view text);

}  // namespace millpond::checkpoint

#endif  // MILLPOND_CHECKPOINT_DIGEST_H_
