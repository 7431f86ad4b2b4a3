package house

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// Limits of shape. A file over the limit answers more than one question; a
// function over it does not fit a screen.
const (
	maxFileLines     = 400
	maxFunctionLines = 75
)

func TestFilesAndFunctionsFitAScreen(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated() {
			continue
		}
		if s.lines > maxFileLines {
			t.Errorf("%s has %d lines, more than %d: split it by question", s.path, s.lines, maxFileLines)
		}
		if s.test {
			continue // a table of cases is long and easy to read
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := s.line(fn.End()) - s.line(fn.Pos()); n > maxFunctionLines {
				t.Errorf("%s:%d: %s has %d lines, more than %d", s.path, s.line(fn.Pos()), fn.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	doc, seen := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		seen[s.pkg()] = true
		if s.file.Doc != nil && strings.TrimSpace(s.file.Doc.Text()) != "" {
			doc[s.pkg()] = true
		}
	}
	for pkg := range seen {
		if !doc[pkg] {
			t.Errorf("package %s has no doc comment", pkg)
		}
	}
}

func TestNoPackageForLeftovers(t *testing.T) {
	for _, s := range sources(t) {
		base := path.Base(s.pkg())
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc"}, base) {
			t.Errorf("%s: a package named %s says nothing about what is in it", s.path, base)
		}
	}
}

// TestNoPackageState: two servers in one process must not notice each other.
func TestNoPackageState(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated() || under(s.pkg(), "compat") {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s:%d: init runs before anyone can configure it", s.path, s.line(d.Pos()))
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR && !s.test {
					checkVars(t, s, d)
				}
			}
		}
	}
}

// checkVars allows error sentinels, interface assertions, embedded files and
// version stamps; nothing else lives at package level.
func checkVars(t *testing.T, s source, d *ast.GenDecl) {
	t.Helper()
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || embedded(d, v) {
			continue
		}
		for i, name := range v.Names {
			if name.Name == "_" || name.Name == "version" || (i < len(v.Values) && sentinel(v.Values[i])) {
				continue
			}
			t.Errorf("%s:%d: package-level variable %s is state that two instances would share", s.path, s.line(name.Pos()), name.Name)
		}
	}
}

func embedded(d *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{d.Doc, v.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed") }) {
			return true
		}
	}
	return false
}

// sentinel reports whether e is errors.New(...) or fmt.Errorf(...).
func sentinel(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && (pkg.Name == "errors" && sel.Sel.Name == "New" || pkg.Name == "fmt" && sel.Sel.Name == "Errorf")
}

// TestForbiddenCalls: recover hides faults, sleeping tests are slow or flaky,
// skipped tests prove nothing, and exiting is main's business.
func TestForbiddenCalls(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated() || under(s.pkg(), "compat") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			where := s.line(call.Pos())
			switch name := callName(call); {
			case name == "recover":
				t.Errorf("%s:%d: recover hides a fault", s.path, where)
			case name == "time.Sleep" && s.test:
				t.Errorf("%s:%d: a test waits for the event or uses fake time; it does not sleep", s.path, where)
			case s.test && (name == "t.Skip" || name == "t.Skipf" || name == "t.SkipNow"):
				t.Errorf("%s:%d: a skipped test proves nothing", s.path, where)
			case (name == "os.Exit" || strings.HasPrefix(name, "log.Fatal")) && !under(s.pkg(), "cmd") && !s.test && !under(s.pkg(), "bench") && !under(s.pkg(), "e2e") && !under(s.pkg(), "rig"):
				t.Errorf("%s:%d: only main ends the process", s.path, where)
			}
			return true
		})
	}
}

func callName(call *ast.CallExpr) string {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		if x, ok := fn.X.(*ast.Ident); ok {
			return x.Name + "." + fn.Sel.Name
		}
	}
	return ""
}
