#include "source_lines.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "lexer.hpp"

namespace msa_ops::emulator::ptx {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
}

// Lines from a begin to its end.
std::vector<std::pair<int, int>> between_comments(std::string_view text) {
  std::vector<std::pair<int, int>> found;
  int line = 1, begin = 0;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view here = trimmed(text.substr(at, end - at));
    if (here == "// begin inline asm") begin = line;
    if (here == "// end inline asm" && begin != 0) {
      found.emplace_back(begin, line);
      begin = 0;
    }
    at = end + 1;
  }
  return found;
}

// Lines of blocks within bodies that are not calls. Braces of vectors open and close without a `;` between.
std::vector<std::pair<int, int>> blocks_in_bodies(const std::vector<Token>& tokens) {
  struct Open {
    int line;
    bool declares_parameters, has_statements;
  };
  std::vector<Open> open;
  std::vector<std::pair<int, int>> found;
  for (const Token& token : tokens) {
    if (token.is('{')) open.push_back({token.line, false, false});
    if (open.empty()) continue;
    if (token.is(';')) open.back().has_statements = true;
    if (token.text == ".param") open.back().declares_parameters = true;
    if (!token.is('}')) continue;
    const Open ended = open.back();
    open.pop_back();
    if (!open.empty() && ended.has_statements && !ended.declares_parameters) found.emplace_back(ended.line, token.line);
  }
  return found;
}

}  // namespace

SourceLines::SourceLines(std::string_view text) {
  const std::vector<Token> tokens = tokenize(text);
  std::vector<std::pair<int, int>> assembly = between_comments(text);
  if (assembly.empty()) assembly = blocks_in_bodies(tokens);
  std::sort(assembly.begin(), assembly.end());
  const auto in_assembly = [&](int line) {
    const auto after = std::upper_bound(assembly.begin(), assembly.end(), std::pair{line, 1 << 30});
    // Blocks may hold others: what ends last of those that begin before the line.
    return std::any_of(assembly.begin(), after, [&](const auto& one) { return line <= one.second; });
  };
  const auto number = [](const Token& token) { return std::atoi(std::string(token.text).c_str()); };
  for (std::size_t i = 0; i + 2 < tokens.size(); ++i) {
    if (tokens[i].text == ".entry" || tokens[i].text == ".func") marks_[tokens[i].line] = {0, 0};
    if (tokens[i].text == ".file" && tokens[i + 2].text.size() >= 2) {
      const std::string_view quoted = tokens[i + 2].text;
      files_[static_cast<unsigned>(number(tokens[i + 1]))] = quoted.substr(1, quoted.size() - 2);
    }
    if (tokens[i].text == ".loc" && !in_assembly(tokens[i].line)) {
      marks_[tokens[i].line] = {static_cast<unsigned>(number(tokens[i + 1])), number(tokens[i + 2])};
    }
  }
}

SourcePlace SourceLines::of(int line) const {
  auto mark = marks_.upper_bound(line);
  if (mark == marks_.begin()) return {};
  const auto [file, source_line] = std::prev(mark)->second;
  const auto named = files_.find(file);
  if (source_line == 0 || named == files_.end()) return {};
  const auto last_part = [](const std::string& path) { return path.substr(path.find_last_of("/\\") + 1); };
  const std::string last = last_part(named->second);
  const bool is_only = std::none_of(files_.begin(), files_.end(), [&](const auto& other) {
    return other.second != named->second && last_part(other.second) == last;
  });
  const std::string at = ":" + std::to_string(source_line);
  return {named->second + at, (is_only ? last : named->second) + at};
}

}  // namespace msa_ops::emulator::ptx
