#include "cuda/sha256.h"

#include <gtest/gtest.h>

namespace moetune::cuda {
namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string sha256(const std::string& text) { return to_hex(Sha256().add(bytes(text)).digest()); }

// The examples of FIPS 180-4.
TEST(Sha256, AgreesWithTheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheMessageIsCut) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i);
  for (const size_t cut :
       {size_t{1}, size_t{55}, size_t{63}, size_t{64}, size_t{65}, size_t{299}}) {
    Sha256 parts;
    parts.add(bytes(text.substr(0, cut))).add(bytes(text.substr(cut)));
    EXPECT_EQ(to_hex(parts.digest()), sha256(text)) << cut;
  }
}

TEST(Sha256, TellsTextsApartByWhereTheyEnd) {
  EXPECT_NE(Sha256().add_text("ab").add_text("c").digest(),
            Sha256().add_text("a").add_text("bc").digest());
}

}  // namespace
}  // namespace moetune::cuda
