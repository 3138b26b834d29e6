package main

// Main is the program.
var Main = main

// ExitCode is exitCode.
var ExitCode = exitCode
