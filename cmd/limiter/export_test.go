package main

// Main is the program.
var Main = main
