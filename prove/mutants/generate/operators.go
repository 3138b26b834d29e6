package generate

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"time"

	"golang.org/x/tools/go/types/typeutil"
)

// binary is what replaces an operator between two values.
var binary = map[token.Token][]token.Token{
	token.LSS: {token.LEQ}, token.LEQ: {token.LSS}, token.GTR: {token.GEQ}, token.GEQ: {token.GTR},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	token.REM: {token.MUL}, token.SHL: {token.SHR}, token.SHR: {token.SHL}, token.AND: {token.OR}, token.OR: {token.AND},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
}

// binaryMutants replaces the operator, and leaves out one side of && and ||.
func (s *scope) binaryMutants(e *ast.BinaryExpr) {
	left, right := s.text(e.X), s.text(e.Y)
	if (e.Op == token.EQL || e.Op == token.NEQ) && s.isCondition(e) {
		return // true and false in its place find more
	}
	operator := "operand"
	switch e.Op {
	case token.LSS, token.LEQ, token.GTR, token.GEQ, token.EQL, token.NEQ:
		operator = "boundary"
	}
	for _, other := range binary[e.Op] {
		s.expr(operator, e, left+" "+other.String()+" "+right)
	}
	if e.Op == token.LAND || e.Op == token.LOR {
		s.expr("condition", e, left)
		if more, ok := e.X.(*ast.BinaryExpr); !ok || more.Op != e.Op { // otherwise each part of it is left out
			s.expr("condition", e, right)
		}
	}
}

// isCondition reports whether e is the condition of an if or a case, or one side of && or ||.
func (s *scope) isCondition(e ast.Expr) bool {
	switch parent := s.parent(0).(type) {
	case *ast.BinaryExpr:
		return parent.Op == token.LAND || parent.Op == token.LOR
	case *ast.IfStmt:
		return parent.Cond == e
	case *ast.CaseClause:
		body, ok := s.parent(2).(*ast.SwitchStmt)
		return ok && body.Tag == nil
	}
	return false
}

// conditionMutants makes a condition always true or always false. It never makes a loop endless.
// Without one side, an && that is always true or an || that is always false is found sooner.
func (s *scope) conditionMutants(cond ast.Expr, values ...string) {
	sides, _ := ast.Unparen(cond).(*ast.BinaryExpr)
	for _, value := range values {
		if sides != nil && (sides.Op == token.LAND && value == "true" || sides.Op == token.LOR && value == "false") {
			continue
		}
		m := s.named("condition", "if "+s.text(cond), "if "+value)
		s.at(cond, "bool", alternative{mutant: m, text: value})
	}
}

// unaryMutants leaves out a sign or a negation.
func (s *scope) unaryMutants(e *ast.UnaryExpr) {
	if e.Op == token.SUB || e.Op == token.NOT && !s.isCondition(e) {
		s.expr("operand", e, s.text(e.X))
	}
}

// constantMutants adds 1 to a number, doubles a time of 1 ms or longer, and inverts a boolean. It makes
// the string of a case one that never comes.
func (s *scope) constantMutants(e ast.Expr, tv types.TypeAndValue) {
	text := s.text(e)
	switch tv.Value.Kind() {
	case constant.String:
		if _, ok := s.parent(0).(*ast.CaseClause); ok {
			s.expr("constant", e, text+` + "?"`)
		}
	case constant.Bool:
		s.expr("constant", e, map[bool]string{true: "false", false: "true"}[constant.BoolVal(tv.Value)])
	case constant.Int, constant.Float:
		if _, simple := e.(*ast.BinaryExpr); simple {
			text = "(" + text + ")"
		}
		if n, exact := constant.Int64Val(constant.ToInt(tv.Value)); exact && types.TypeString(tv.Type, nil) == "time.Duration" && n >= int64(time.Millisecond) {
			s.expr("constant", e, text+" * 2")
			return
		}
		s.expr("constant", e, text+" + 1")
	}
}

// callMutants turns min into max and max into min, leaves one argument of them, and swaps neighboring
// arguments of one type.
func (s *scope) callMutants(e *ast.CallExpr) {
	name, _ := ast.Unparen(e.Fun).(*ast.Ident)
	if name != nil && s.info.Types[e.Fun].IsBuiltin() && (name.Name == "min" || name.Name == "max") {
		other := map[string]string{"min": "max", "max": "min"}[name.Name]
		s.expr("min and max", e, other+s.text(e)[len(name.Name):])
		for _, arg := range e.Args {
			s.expr("min and max", e, s.text(arg))
		}
		return // the order of the arguments means nothing
	}
	if s.info.Types[e.Fun].IsType() || s.anyOrder(e) || name != nil && name.Name == "make" {
		return
	}
	for i := 0; i+1 < len(e.Args); i++ {
		if e.Ellipsis.IsValid() && i+2 == len(e.Args) {
			break
		}
		a, b := e.Args[i], e.Args[i+1]
		ta, tb := s.info.Types[a], s.info.Types[b]
		typ := s.typeOf(a)
		if typ == "" || s.typeOf(b) != typ || ta.IsNil() || tb.IsNil() || s.text(a) == s.text(b) {
			continue
		}
		m := s.named("arguments", s.text(e.Fun)+"("+s.text(a)+", "+s.text(b)+")", s.text(e.Fun)+"("+s.text(b)+", "+s.text(a)+")")
		s.at(a, typ, alternative{mutant: m, text: s.text(b)})
		s.at(b, typ, alternative{mutant: m, text: s.text(a)})
	}
}

// anyOrder reports whether the order of a function's arguments means nothing, or only shows in a text
// for people.
func (s *scope) anyOrder(call *ast.CallExpr) bool {
	object := typeutil.Callee(s.info, call)
	if object == nil || object.Pkg() == nil {
		return false
	}
	path := object.Pkg().Path()
	return path == "fmt" || path == "log/slog" || object.Name() == "invalid" || object.Name() == "Mul64"
}

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
		if st.Tok == token.DEFINE {
			return
		}
		if other, ok := assigned[st.Tok]; ok {
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

func (s *scope) replace(operator string, st ast.Stmt, after string) {
	s.at(st, "", alternative{mutant: s.named(operator, s.text(st), after), text: after})
}

// returnMutants loses an error.
func (s *scope) returnMutants(r *ast.ReturnStmt) {
	signature := s.result
	for _, n := range s.stack {
		if inner, ok := n.(*ast.FuncLit); ok {
			signature = s.info.Types[inner].Type.(*types.Signature)
		}
	}
	results := signature.Results()
	if results.Len() != len(r.Results) {
		return
	}
	for i, e := range r.Results {
		if !isError(results.At(i).Type()) || s.info.Types[e].IsNil() {
			continue
		}
		after := "func() error { var err error = " + s.text(e) + "; _ = err; return nil }()"
		m := s.named("error", "return "+s.text(e), "return nil")
		s.at(e, "error", alternative{mutant: m, text: after})
	}
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

func isString(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsString != 0
}
