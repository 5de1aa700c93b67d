package main

import "crypto/rand"

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand.Read never fails: it ends the program instead
	return b
}
