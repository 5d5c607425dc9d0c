// Keeps clang-tidy's checks away from other people's headers.
//
// clang-tidy 19 lets every check look at every declaration it has parsed and afterwards throws away
// what was found in system headers. For a file that includes libtorch that is nine tenths of its
// time. This plugin adds one check, muster-ours-only, that finds nothing: when it is shown the
// translation unit, which is before anything in it, it limits the traversal that has just begun to
// the declarations outside system headers. What is in a precompiled header is then not even loaded.
//
// tidy.py compiles it against the headers of libclang-19-dev and llvm-19-dev and loads it. Without
// them clang-tidy works as ever, only slowly.
#include <vector>

#include "clang-tidy/ClangTidyCheck.h"
#include "clang-tidy/ClangTidyModule.h"
#include "clang-tidy/ClangTidyModuleRegistry.h"
#include "clang/AST/ASTContext.h"
#include "clang/ASTMatchers/ASTMatchers.h"

namespace {

using clang::ast_matchers::MatchFinder;
using clang::tidy::ClangTidyCheck;

class OursOnly : public ClangTidyCheck {
 public:
  using ClangTidyCheck::ClangTidyCheck;

  void registerMatchers(MatchFinder* finder) override {
    finder->addMatcher(clang::ast_matchers::translationUnitDecl(), this);
  }

  void check(const MatchFinder::MatchResult& result) override {
    std::vector<clang::Decl*> ours;
    for (auto* declaration : result.Context->getTranslationUnitDecl()->noload_decls()) {
      if (!result.SourceManager->isInSystemHeader(declaration->getLocation())) {
        ours.push_back(declaration);
      }
    }
    result.Context->setTraversalScope(ours);
  }
};

class MusterModule : public clang::tidy::ClangTidyModule {
 public:
  void addCheckFactories(clang::tidy::ClangTidyCheckFactories& factories) override {
    factories.registerCheck<OursOnly>("muster-ours-only");
  }
};

const clang::tidy::ClangTidyModuleRegistry::Add<MusterModule> registered("muster-module",
                                                                         "Muster's own.");

}  // namespace
