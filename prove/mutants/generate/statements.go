package generate

import (
	"go/ast"
	"go/token"
	"go/types"
)

// assigned is what replaces an assignment with an operator.
var assigned = map[token.Token]token.Token{
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	token.SHL_ASSIGN: token.SHR_ASSIGN, token.SHR_ASSIGN: token.SHL_ASSIGN,
	token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN,
}

// statementMutants leaves out a statement of a block, or inverts what it does.
func (s *scope) statementMutants(st ast.Stmt) {
	switch st := st.(type) {
	case *ast.AssignStmt:
		if st.Tok == token.DEFINE || blank(st) {
			return
		}
		if other, ok := assigned[st.Tok]; ok && !isString(s.info.Types[st.Lhs[0]].Type) {
			s.replace("operand", st, s.text(st.Lhs[0])+" "+other.String()+" "+s.text(st.Rhs[0]))
		}
	case *ast.IncDecStmt:
		other := map[token.Token]string{token.INC: "--", token.DEC: "++"}[st.Tok]
		s.replace("operand", st, s.text(st.X)+other)
	case *ast.ExprStmt:
		if call, ok := st.X.(*ast.CallExpr); ok && s.info.Types[call.Fun].IsBuiltin() && s.text(call.Fun) == "panic" {
			return // a function may end with it
		}
	case *ast.BranchStmt:
		if st.Tok != token.BREAK && st.Tok != token.CONTINUE {
			return
		}
	case *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
	default:
		return
	}
	s.replace("statement", st, "")
}

// replace adds a mutant of a statement.
func (s *scope) replace(operator string, st ast.Stmt, after string) {
	s.at(st, "", alternative{mutant: s.named(operator, s.text(st), after), text: after})
}

// blank reports whether an assignment does nothing.
func blank(st *ast.AssignStmt) bool {
	for _, e := range st.Rhs {
		if _, call := e.(*ast.CallExpr); call {
			return false
		}
	}
	for _, e := range st.Lhs {
		if id, ok := e.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return true
}

// signature returns the type of a function.
func (p *pkg) signature(t *ast.FuncType, name *ast.Ident) *types.Signature {
	if name != nil {
		if f, ok := p.info.Defs[name].(*types.Func); ok {
			return f.Signature()
		}
	}
	if tv, ok := p.info.Types[t]; ok {
		sig, _ := tv.Type.(*types.Signature)
		return sig
	}
	return nil
}
