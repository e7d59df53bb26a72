// Package sealing seals the data of specs to the key of their cluster, so that only its agent can
// read them (docs/protocol.md, Sealed data):
//
//	sealer, err := sealing.NewSealer(sealing.SealerConfig{Dir: "seal-keys", Secret: signer.Secret})
//	err = sealer.Seal(&event) // at the source, before the event is signed
//	...
//	unsealer, err := sealing.NewUnsealer(sealing.UnsealerConfig{Files: []string{"unseal.key"}})
//	opened, err := unsealer.Open(event) // at the agent, after the signature was verified
//
// Keys are hybrid: MLKEM768-X25519 (X-Wing) with HKDF-SHA256 and AES-256-GCM, by HPKE (RFC 9180). What
// the broker stores today can therefore not be read with a quantum computer later. Files are read
// again when they change.
package sealing
