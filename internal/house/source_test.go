package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const modulePath = "github.com/culvert-proxy/culvert"

// source is one parsed Go file of this repository.
type source struct {
	path  string // slash-separated, relative to the repository's root
	test  bool
	file  *ast.File
	fset  *token.FileSet
	lines int
}

// pkg is the import path of the directory that holds s, relative to the module path.
func (s source) pkg() string { return filepath.ToSlash(filepath.Dir(s.path)) }

// generated reports whether the file says that it was generated.
func (s source) generated() bool { return ast.IsGenerated(s.file) }

// line is the line number of pos.
func (s source) line(pos token.Pos) int { return s.fset.Position(pos).Line }

// sources parses every Go file of every module of the repository.
func sources(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var all []source
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		s, err := parse(root, path)
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found only %d Go files below %s: the walk is broken", len(all), root)
	}
	return all
}

func parse(root, path string) (source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return source{}, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	rel, err := filepath.Rel(root, path)
	return source{
		path:  filepath.ToSlash(rel),
		test:  strings.HasSuffix(path, "_test.go"),
		file:  file,
		fset:  fset,
		lines: strings.Count(string(text), "\n"),
	}, err
}

// under reports whether pkg is dir or lies below it.
func under(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }
