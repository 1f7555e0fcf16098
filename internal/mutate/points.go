package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// The kinds of changes.
const (
	negate = "negate"
	bound  = "bound"
	moved  = "const"
	drop   = "drop"
)

// point is one place where the package can be changed.
type point struct {
	n    int // from 1; what MUTANT names
	pos  token.Position
	file string // below the module's folder, with slashes
	fn   string
	kind string
	code string // what is changed, in one line; unique in the function for the kind
}

// id names a point without its place.
func (p point) id() string { return strings.Join([]string{p.file, p.fn, p.kind, p.code}, " | ") }

// source is a file of the package.
type source struct {
	path string // on disk
	name string // as in point.file
	text []byte
	ast  *ast.File
}

// edit replaces a piece of a file by text.
type edit struct {
	at, length int
	text       string
	closing    bool // ends what an earlier edit began
}

// finder finds the points of a package.
type finder struct {
	fset *token.FileSet
	info *types.Info
	pkg  *types.Package
	// without are the lines on which there are no points, by lineOf.
	without map[string]bool

	src    *source
	fn     string
	points []point
	edits  []edit
	stack  []ast.Node
	nots   map[ast.Expr]bool // conditions, found from above
	seen   map[string]int
}

// rewrite returns the file with all its points behind switches.
func (f *finder) rewrite(src *source) []byte {
	f.src, f.edits, f.fn, f.seen = src, nil, "", map[string]int{}
	f.nots = map[ast.Expr]bool{}
	for _, d := range src.ast.Decls {
		f.fn = "-"
		switch d := d.(type) {
		case *ast.FuncDecl:
			f.fn = funcName(d)
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
		}
		ast.PreorderStack(d, nil, func(n ast.Node, stack []ast.Node) bool {
			f.stack = stack
			return f.visit(n)
		})
	}
	return apply(src.text, f.edits)
}

// apply carries out edits, which are in the order in which their nodes begin:
// an outer one before those inside it.
func apply(text []byte, edits []edit) []byte {
	order := make([]int, len(edits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := edits[a], edits[b]
		switch {
		case x.at != y.at:
			return x.at - y.at
		case x.closing != y.closing: // what ends here ends before the next begins
			if x.closing {
				return -1
			}
			return 1
		case x.closing:
			return b - a // the inner one first
		}
		return a - b
	})
	var out bytes.Buffer
	last := 0
	for _, i := range order {
		e := edits[i]
		out.Write(text[last:e.at])
		out.WriteString(e.text)
		last = e.at + e.length
	}
	out.Write(text[last:])
	return out.Bytes()
}

func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	return types.ExprString(t) + "." + d.Name.Name
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return oneLine(string(f.src.text[f.offset(n.Pos()):f.offset(n.End())]))
}

func oneLine(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "¦")
}

// add notes a point, and returns 0 where there is to be none.
func (f *finder) add(kind string, at token.Pos, code string) int {
	if where := f.fset.Position(at); f.without[lineOf(where.Filename, where.Line)] {
		return 0
	}
	p := point{n: len(f.points) + 1, pos: f.fset.Position(at), file: f.src.name, fn: f.fn, kind: kind, code: code}
	f.seen[p.id()]++
	if k := f.seen[p.id()]; k > 1 {
		p.code += " #" + strconv.Itoa(k)
	}
	f.points = append(f.points, p)
	return p.n
}

// around puts a node behind the switch of point number, if that is not 0.
func (f *finder) around(n ast.Node, number int, before, after string) {
	if number == 0 {
		return
	}
	f.edits = append(f.edits, edit{at: f.offset(n.Pos()), text: before}, edit{at: f.offset(n.End()), text: after, closing: true})
}

// visit finds the points at a node; it reports whether to look into it.
func (f *finder) visit(n ast.Node) bool {
	if n == nil {
		return true
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		if n.Tok != token.VAR {
			return false
		}
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.condition(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					f.condition(e)
				}
			}
		}
	case *ast.ArrayType:
		return n.Len == nil
	}
	if s, ok := n.(ast.Stmt); ok && f.inList(s) {
		if f.forPeople(s) {
			return false
		}
		f.droppable(s)
	}
	if e, ok := n.(ast.Expr); ok {
		return f.expr(e)
	}
	return true
}

// condition marks an expression that decides something.
func (f *finder) condition(e ast.Expr) {
	for {
		p, ok := e.(*ast.ParenExpr)
		if !ok {
			break
		}
		e = p.X
	}
	if b, ok := e.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
		f.condition(b.X)
		f.condition(b.Y)
	}
	f.nots[e] = true
}

func (f *finder) expr(e ast.Expr) bool {
	tv := f.info.Types[e]
	if tv.IsType() {
		return false
	}
	if tv.Value != nil {
		f.constant(e, tv)
		return false
	}
	b, _ := e.(*ast.BinaryExpr)
	comparison := b != nil && (b.Op == token.EQL || b.Op == token.NEQ || b.Op == token.LSS || b.Op == token.LEQ || b.Op == token.GTR || b.Op == token.GEQ)
	if b != nil && (b.Op == token.LAND || b.Op == token.LOR) {
		f.condition(b.X)
		f.condition(b.Y)
	}
	if f.nots[e] || comparison {
		n := f.add(negate, e.Pos(), f.text(e))
		f.around(e, n, fmt.Sprintf("mutateNot(%d, ", n), ")")
	}
	if comparison && b.Op != token.EQL && b.Op != token.NEQ {
		n := f.add(bound, b.OpPos, f.text(e))
		name := map[token.Token]string{token.LSS: "mutateLess", token.LEQ: "mutateLessEqual", token.GTR: "mutateGreater", token.GEQ: "mutateGreaterEqual"}[b.Op]
		if n == 0 {
			return true
		}
		f.around(e, n, fmt.Sprintf("%s(%d, ", name, n), ")")
		f.edits = append(f.edits, edit{at: f.offset(b.OpPos), length: len(b.Op.String()), text: ","})
	}
	return true
}

// constant finds out whether a constant can be moved.
func (f *finder) constant(e ast.Expr, tv types.TypeAndValue) {
	basic, ok := tv.Type.Underlying().(*types.Basic)
	if !ok || basic.Info()&types.IsInteger == 0 || tv.Value.Kind() != constant.Int {
		return
	}
	character := false
	ast.Inspect(e, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		character = character || ok && lit.Kind == token.CHAR
		return true
	})
	if character || f.mustBeConstant(e) || f.hint(e) || f.sameAsBound(e) || f.besideAnError(e) {
		return
	}
	typ := basic.Name()
	if named, ok := types.Unalias(tv.Type).(*types.Named); ok {
		if named.Obj().Pkg() != f.pkg {
			return // a duration, a file mode: one more of it is no other behaviour
		}
		typ = named.Obj().Name()
	} else if basic.Info()&types.IsUntyped != 0 {
		typ = "int"
	}
	begin := bytes.LastIndexByte(f.src.text[:f.offset(e.Pos())], '\n') + 1
	end := len(f.src.text)
	if i := bytes.IndexByte(f.src.text[f.offset(e.End()):], '\n'); i >= 0 {
		end = f.offset(e.End()) + i
	}
	code := string(f.src.text[begin:f.offset(e.Pos())]) + "[[" + string(f.src.text[f.offset(e.Pos()):f.offset(e.End())]) + "]]" + string(f.src.text[f.offset(e.End()):end])
	code, _, _ = strings.Cut(code, " // ")
	n := f.add(moved, e.Pos(), oneLine(code))
	f.around(e, n, fmt.Sprintf("mutateMove(%d, %s(", n, typ), "))")
}

// mustBeConstant reports whether the language wants a constant in e's place.
func (f *finder) mustBeConstant(e ast.Expr) bool {
	if len(f.stack) == 0 {
		return false
	}
	kv, ok := f.stack[len(f.stack)-1].(*ast.KeyValueExpr)
	if !ok || kv.Key != e {
		return false
	}
	lit, ok := f.stack[len(f.stack)-2].(*ast.CompositeLit)
	if !ok {
		return false
	}
	_, isMap := f.info.TypeOf(lit).Underlying().(*types.Map)
	return !isMap
}

// hint reports whether e is a size that changes no behaviour.
func (f *finder) hint(e ast.Expr) bool {
	for i := len(f.stack) - 1; i >= 0; i-- {
		call, ok := f.stack[i].(*ast.CallExpr)
		if !ok {
			if _, ok := f.stack[i].(ast.Expr); ok {
				continue
			}
			return false
		}
		id, ok := call.Fun.(*ast.Ident)
		if !ok || id.Name != "make" || len(call.Args) < 2 {
			continue
		}
		_, isMap := f.info.TypeOf(call).Underlying().(*types.Map)
		last := call.Args[len(call.Args)-1]
		if (isMap || len(call.Args) == 3) && last.Pos() <= e.Pos() && e.End() <= last.End() {
			return true
		}
	}
	return false
}

// sameAsBound reports whether e is what something is compared with so that one
// more of it is what the other bound is: a < 5 would be a < 6, which is a <= 5.
func (f *finder) sameAsBound(e ast.Expr) bool {
	if len(f.stack) == 0 {
		return false
	}
	b, ok := f.stack[len(f.stack)-1].(*ast.BinaryExpr)
	return ok && b.Y == e && (b.Op == token.LSS || b.Op == token.GEQ)
}

// besideAnError reports whether e is returned with an error, and so is nothing
// that anybody looks at.
func (f *finder) besideAnError(e ast.Expr) bool {
	if len(f.stack) == 0 {
		return false
	}
	ret, ok := f.stack[len(f.stack)-1].(*ast.ReturnStmt)
	if !ok || slices.Index(ret.Results, e) < 0 {
		return false
	}
	last := f.info.Types[ret.Results[len(ret.Results)-1]]
	return !last.IsNil() && last.Type != nil && types.Implements(last.Type, errorType)
}

var errorType = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

// inList reports whether a statement stands in a block, where it can be wrapped.
func (f *finder) inList(s ast.Stmt) bool {
	if len(f.stack) == 0 {
		return false
	}
	switch up := f.stack[len(f.stack)-1].(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return true
	case *ast.CommClause:
		return up.Comm != s
	case *ast.LabeledStmt:
		return true
	}
	return false
}

// forPeople reports whether a statement only tells people something.
func (f *finder) forPeople(s ast.Stmt) bool {
	x, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := x.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name == "panic"
	case *ast.SelectorExpr:
		t := f.info.TypeOf(fun.X)
		return t != nil && strings.TrimPrefix(t.String(), "*") == "log/slog.Logger"
	}
	return false
}

func (f *finder) droppable(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt:
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return
		}
		if len(s.Lhs) == 1 && len(s.Rhs) == 1 {
			lhs, ok := s.Lhs[0].(*ast.Ident)
			if _, value := s.Rhs[0].(*ast.Ident); ok && lhs.Name == "_" && value {
				return
			}
		}
	default:
		return
	}
	code := f.text(s)
	if runes := []rune(code); len(runes) > 100 {
		code = string(runes[:100]) + "…"
	}
	n := f.add(drop, s.Pos(), code)
	f.around(s, n, fmt.Sprintf("if mutateKeep(%d) { ", n), " }")
}
