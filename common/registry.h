// Named factories that register themselves: one file, one registration line, no central list.
//
//   const Registration<OptimizerFactory> kSgd{"sgd", MakeSgd};       // at namespace scope, in sgd.cc
//   const OptimizerFactory* make = Registry<OptimizerFactory>::Find("sgd");
//
// Thread rule: written before main by static initialisation, read-only after, so const-safe from then on. A name
// registered twice ends the program before main with both named. The map is a function-local static because static
// objects of different files are constructed in no order.

#ifndef COMMON_REGISTRY_H_
#define COMMON_REGISTRY_H_

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lagrange {

template <typename Factory>
class Registry {
 public:
  // Null when nothing has the name.
  static const Factory* Find(absl::string_view name) {
    const auto& all = Map();
    const auto found = all.find(std::string(name));
    return found == all.end() ? nullptr : &found->second;
  }

  // Sorted.
  static std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& [name, factory] : Map()) names.push_back(name);
    return names;
  }

  static void Add(const char* name, Factory factory) {
    if (!Map().emplace(name, std::move(factory)).second) {
      std::fprintf(stderr, "the name \"%s\" is registered twice\n", name);
      std::abort();
    }
  }

 private:
  static std::map<std::string, Factory>& Map() {
    static auto* map = new std::map<std::string, Factory>();
    return *map;
  }
};

template <typename Factory>
struct Registration {
  Registration(const char* name, Factory factory) { Registry<Factory>::Add(name, std::move(factory)); }
};

}  // namespace lagrange

#endif  // COMMON_REGISTRY_H_
