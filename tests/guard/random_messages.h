// Messages of handshake.proto filled at random through the official library's reflection: every
// field, also the ones that a hand-written test forgets.
#ifndef MILLPOND_TESTS_GUARD_RANDOM_MESSAGES_H_
#define MILLPOND_TESTS_GUARD_RANDOM_MESSAGES_H_

#include <google/protobuf/message.h>

#include <random>

namespace millpond::tests {

// Integers of every size, enum values also outside the enum, strings of valid UTF-8; fields are
// sometimes left out. Dimensions stay within the reader's cap.
void fill_at_random(google::protobuf::Message& message, std::mt19937_64& random);

}  // namespace millpond::tests

#endif  // MILLPOND_TESTS_GUARD_RANDOM_MESSAGES_H_
