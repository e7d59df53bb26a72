// Package fuzz has a network fuzzer for the broker. It sends bytes that clients must not send, before
// and after CONNECT, to a broker in a process of its own, and checks that two other clients are
// served, that memory, goroutines and file descriptors stay within bounds, and that the broker starts
// again with the data that it has stored:
//
//	go test ./broker/fuzz -for 10m -seed 7
//
// testdata/corpus has scripts that are replayed first, and mutated. A script that breaks the broker
// is reduced and written there: commit it with the repair.
package fuzz
