package generate

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

func (p *pkg) find() {
	for _, f := range p.files {
		for _, d := range f.ast.Decls {
			s := &scope{pkg: p, file: f}
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Body != nil {
					s.fn, s.result = p.funcName(f, d), p.info.Defs[d.Name].Type().(*types.Signature)
					s.walk(d.Body, d)
				}
			case *ast.GenDecl:
				s.walk(d)
			}
		}
	}
}

// funcName returns the name of a function, as in TokenBucket.take.
func (p *pkg) funcName(f *file, d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	receiver, _, _ := strings.Cut(strings.TrimPrefix(p.source(f, d.Recv.List[0].Type), "*"), "[")
	return receiver + "." + d.Name.Name
}

func (s *scope) walk(n ast.Node, parents ...ast.Node) {
	ast.PreorderStack(n, parents, func(n ast.Node, stack []ast.Node) bool {
		s.stack = stack
		return s.visit(n)
	})
}

// visit finds the mutants of one node. It returns whether to look at what the node has.
func (s *scope) visit(n ast.Node) bool {
	if s.embedUse(n) {
		return false
	}
	if e, ok := n.(ast.Expr); ok {
		tv := s.info.Types[e]
		if tv.IsType() || s.isCapacity(e) {
			return false
		}
		if tv.Value != nil {
			s.constantMutants(e, tv)
			return false
		}
		if recovers(e) {
			_, literal := e.(*ast.FuncLit)
			return literal
		}
	}
	if st, ok := n.(ast.Stmt); ok && s.inBlock(st) {
		s.statementMutants(st)
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.IfStmt:
		s.conditionMutants(n.Cond, "true", "false")
	case *ast.ForStmt:
		if n.Cond != nil {
			s.conditionMutants(n.Cond, "false")
		}
	case *ast.CaseClause:
		if body, ok := s.parent(1).(*ast.SwitchStmt); ok && body.Tag == nil {
			for _, e := range n.List {
				s.conditionMutants(e, "true", "false")
			}
		}
	case *ast.ReturnStmt:
		s.returnMutants(n)
	case *ast.BinaryExpr:
		s.binaryMutants(n)
	case *ast.UnaryExpr:
		s.unaryMutants(n)
	case *ast.CallExpr:
		s.callMutants(n)
	}
	return true
}

// inBlock reports whether a statement stands in a list of statements, where an if can take its place.
func (s *scope) inBlock(st ast.Stmt) bool {
	switch parent := s.parent(0).(type) {
	case *ast.BlockStmt, *ast.CaseClause:
		return true
	case *ast.CommClause:
		return parent.Comm != st
	}
	return false
}

// isCapacity reports whether e only says how much make allocates.
func (s *scope) isCapacity(e ast.Expr) bool {
	call, ok := s.parent(0).(*ast.CallExpr)
	if !ok || !s.info.Types[call.Fun].IsBuiltin() || s.text(call.Fun) != "make" {
		return false
	}
	if len(call.Args) == 3 {
		return call.Args[2] == e
	}
	_, isSlice := s.info.Types[call].Type.Underlying().(*types.Slice)
	return !isSlice && len(call.Args) == 2 && call.Args[1] == e
}

// recovers reports whether an expression calls recover, which works only in the function itself.
func recovers(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if _, inner := n.(*ast.FuncLit); inner && n != ast.Node(e) {
			return false
		}
		if call, ok := n.(*ast.CallExpr); ok {
			if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "recover" {
				found = true
			}
		}
		return !found
	})
	return found
}
