#include "common/job_text.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/job_config.h"
#include "common/job_field_ranges.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace lagrange {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::TextFormat;
using ::google::protobuf::io::Tokenizer;

// Of what an error message repeats of a text.
constexpr size_t kMaxShownLength = 100;

std::string Shown(absl::string_view text) {
  return text.size() <= kMaxShownLength ? std::string(text) : absl::StrCat(text.substr(0, kMaxShownLength), "...");
}

void CollectPositions(const TextFormat::ParseInfoTree& tree, const Descriptor& message, const std::string& prefix,
                      std::map<std::string, TextPosition>* positions) {
  for (int f = 0; f < message.field_count(); ++f) {
    const FieldDescriptor* field = message.field(f);
    for (int i = field->is_repeated() ? 0 : -1;; ++i) {
      const TextFormat::ParseLocation location = tree.GetLocation(field, i);
      if (location.line < 0) break;
      const std::string path = absl::StrCat(prefix, field->name(), i < 0 ? "" : absl::StrCat("[", i, "]"));
      const TextPosition position = {location.line + 1, location.column + 1};
      positions->emplace(path, position);
      // Elements of a list in brackets have no position of their own.
      if (i == 0) positions->emplace(absl::StrCat(prefix, field->name()), position);
      if (field->message_type() != nullptr) {
        const TextFormat::ParseInfoTree* nested = tree.GetTreeForNested(field, i);
        if (nested != nullptr) CollectPositions(*nested, *field->message_type(), absl::StrCat(path, "."), positions);
      }
      if (i < 0) break;
    }
  }
}

class SilentCollector final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

// Follows the text format's nesting token by token, knowing no more of its grammar than where names stand.
class FieldTracker {
 public:
  FieldTracker() { messages_.push_back({"", JobSpec::descriptor(), {}}); }

  void Next(const Tokenizer::Token& token) {
    if (token.type == Tokenizer::TYPE_IDENTIFIER && !expects_value_ && lists_ == 0) {
      StartField(token);
    } else if (token.text == ":") {
      expects_value_ = true;
    } else if (token.text == "{" || token.text == "<") {
      messages_.push_back(
          {absl::StrCat(Path(), "."), current_.field == nullptr ? nullptr : current_.field->message_type(), {}});
      outer_lists_.push_back(std::exchange(lists_, 0));
      outer_fields_.push_back(current_);
      expects_value_ = false;
      open_ = false;
    } else if ((token.text == "}" || token.text == ">") && messages_.size() > 1) {
      messages_.pop_back();
      lists_ = outer_lists_.back();
      outer_lists_.pop_back();
      current_ = outer_fields_.back();
      outer_fields_.pop_back();
      open_ = lists_ > 0;
    } else if (token.text == "[") {
      ++lists_;
    } else if (token.text == "]" && lists_ > 0) {
      --lists_;
      expects_value_ = false;
      open_ = lists_ > 0;
    } else if (token.text == "," && lists_ > 0) {
      ++messages_.back().counts[current_.name];
      ++current_.index;
    } else if (token.text != "-") {
      expects_value_ = false;
      open_ = lists_ > 0;
    }
    previous_position_ = {token.line + 1, token.column + 1};
  }

  FieldAtPosition Current() const {
    if (open_) return {Path(), current_.name_position, previous_position_, current_.field};
    const std::string& prefix = messages_.back().prefix;
    return {prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1), previous_position_, previous_position_, nullptr};
  }

 private:
  struct OpenMessage {
    std::string prefix;
    // Null inside an unknown field.
    const Descriptor* type;
    // Values seen of each repeated field.
    std::map<std::string, int> counts;
  };
  struct Field {
    std::string prefix;
    std::string name;
    const FieldDescriptor* field = nullptr;
    int index = 0;
    TextPosition name_position;
  };

  void StartField(const Tokenizer::Token& token) {
    OpenMessage& message = messages_.back();
    current_.prefix = message.prefix;
    current_.name = token.text;
    current_.field = message.type == nullptr ? nullptr : message.type->FindFieldByName(token.text);
    current_.index = message.counts[token.text]++;
    current_.name_position = {token.line + 1, token.column + 1};
    open_ = true;
  }

  std::string Path() const {
    const bool repeated = current_.field != nullptr && current_.field->is_repeated();
    return absl::StrCat(current_.prefix, current_.name, repeated ? absl::StrCat("[", current_.index, "]") : "");
  }

  std::vector<OpenMessage> messages_;
  std::vector<int> outer_lists_;
  std::vector<Field> outer_fields_;
  Field current_;
  int lists_ = 0;
  bool expects_value_ = false;
  // A field has been named and not yet been given its value.
  bool open_ = false;
  TextPosition previous_position_;
};

// What is in the message's quotes: 'has no field named "x".' has ["lagrange.JobSpec", "x"].
std::vector<std::string> Quoted(absl::string_view message) {
  std::vector<std::string> all;
  const std::vector<std::string> pieces = absl::StrSplit(message, '"');
  for (size_t i = 1; i + 1 < pieces.size(); i += 2) all.push_back(pieces[i]);
  return all;
}

std::string DescribeUnknownField(absl::string_view message_type, absl::string_view name) {
  const Descriptor* type =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(std::string(message_type));
  std::string text = absl::StrCat("unknown field \"", Shown(name), "\"");
  if (type == nullptr) return text;
  absl::StrAppend(&text, " in ", type->name());
  std::vector<std::string> known;
  for (int f = 0; f < type->field_count(); ++f) known.push_back(type->field(f)->name());
  const std::string nearest = NearestName(name, known);
  if (!nearest.empty()) return absl::StrCat(text, "; did you mean \"", nearest, "\"?");
  return absl::StrCat(text,
                      known.empty() ? "; it has no fields" : absl::StrCat("; known are ", absl::StrJoin(known, ", ")));
}

// The offending token, from the parser's several ways to say that a value is of the wrong type; "" for other messages.
std::string WrongValue(absl::string_view message) {
  for (const char* start :
       {"Expected integer, got: ", "Expected double, got: ", "Expected string, got: ", "Expected identifier, got: "}) {
    if (absl::ConsumePrefix(&message, start)) return Shown(message);
  }
  if (absl::ConsumePrefix(&message, "Integer out of range (")) return Shown(absl::StripSuffix(message, ")"));
  if (absl::StartsWith(message, "Invalid value for boolean field")) return Shown(Quoted(message).back());
  if (absl::StartsWith(message, "Expected \"{\", found ")) return Shown(Quoted(message).back());
  return "";
}

std::string WithLowerCase(absl::string_view message) {
  std::string text(absl::StripSuffix(message, "."));
  if (!text.empty()) text[0] = absl::ascii_tolower(static_cast<unsigned char>(text[0]));
  return text;
}

}  // namespace

FieldLocations::FieldLocations(absl::string_view file_name, const TextFormat::ParseInfoTree& tree)
    : file_name_(file_name) {
  CollectPositions(tree, *JobSpec::descriptor(), "", &positions_);
}

std::string FieldLocations::Describe(absl::string_view path) const {
  while (!path.empty()) {
    const auto found = positions_.find(std::string(path));
    if (found != positions_.end()) {
      return absl::StrCat(file_name_, ":", found->second.line, ":", found->second.column);
    }
    const size_t cut = path.find_last_of(".[");
    path = path.substr(0, cut == absl::string_view::npos ? 0 : cut);
  }
  return file_name_;
}

FieldAtPosition FindFieldAt(absl::string_view text, TextPosition position) {
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  SilentCollector silent;
  Tokenizer tokenizer(&stream, &silent);
  tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  FieldTracker tracker;
  while (tokenizer.Next()) {
    const Tokenizer::Token& token = tokenizer.current();
    if (std::make_pair(token.line + 1, token.column + 1) >= std::make_pair(position.line, position.column)) break;
    tracker.Next(token);
  }
  return tracker.Current();
}

std::string DescribeTextError(absl::string_view file_name, absl::string_view text, TextPosition position,
                              absl::string_view message) {
  FieldAtPosition at = FindFieldAt(text, position);
  std::string problem = WithLowerCase(Shown(message));
  const bool about_name = absl::StrContains(message, "has no field named") ||
                          absl::StrContains(message, "specified multiple times") ||
                          absl::StrContains(message, "is specified along with");
  if (about_name) {
    // The parser stands behind the name already.
    position = at.name_position;
    const std::vector<std::string> quoted = Quoted(message);
    if (quoted.size() == 2 && at.field == nullptr) problem = DescribeUnknownField(quoted[0], quoted[1]);
  } else if (absl::StartsWith(message, "Invalid value for boolean field")) {
    // It stands behind the value: the field at hand is that of the token before.
    position = at.previous_position;
    at = FindFieldAt(text, position);
  }
  if (const std::string got = WrongValue(message); !got.empty() && at.field != nullptr) {
    problem =
        absl::StrCat("expected ", DescribeExpectedValue(*at.field), ", got ", got == "-" ? "a negative number" : got);
  }
  return absl::StrCat(file_name, ":", position.line, ":", position.column, ": ", at.path, at.path.empty() ? "" : ": ",
                      problem);
}

}  // namespace lagrange
