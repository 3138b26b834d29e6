package main

// harness is a check by the fault harness, in a round of its smallest tier. That of a history
// is a short one; when something is wrong porcupine would look for long for what is right.
func harness(test, says string) Check {
	return Check{Package: "./prove", Run: "^" + test + "$", Says: says, Args: []string{"-tier=ci", "-fraction=0.001", "-calls=15", "-porcupine=1s", "-report="}}
}
