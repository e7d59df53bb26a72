package broker

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// Passwords that people choose are hashed with bcrypt, so that whoever reads a hash cannot try many.
// Random ones need no slow hash, and a fleet of agents must be back soon after a restart: they have
// PBKDF2 with SHA-512 and few iterations, in the format of mosquitto_passwd:
//
//	$7$<iterations>$<salt in base64>$<hash in base64>

const (
	pbkdf2Prefix     = "$7$"
	pbkdf2Iterations = 101       // as mosquitto_passwd
	maxIterations    = 1_000_000 // half a second of CPU time
	quickIterations  = 1_000     // half a millisecond
	randomBytes      = 32        // of a random password
)

// decoyHash is compared with the passwords of unknown users, so that the time of a refusal does not
// reveal whether the user exists. It is the hash of random bytes.
const decoyHash = "$2a$10$I7E44C5VdnNU3Izjvw3aV.CM2IbizTue7ADt.AArKNmGYFm7SeS4u"

// HashPassword returns the bcrypt hash of password for [User.PasswordHash]. It returns an error if
// the password is empty or longer than 72 bytes, the limit of bcrypt.
func HashPassword(password string) (string, error) {
	if password == "" {
		return "", errors.New("hash the password: the password is empty")
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return "", fmt.Errorf("hash the password: %w", err)
	}
	return string(hash), nil
}

// RandomPassword returns a new password of 256 random bits and its hash for [User.PasswordHash],
// which is checked in microseconds.
func RandomPassword() (password, hash string, err error) {
	secret, salt := make([]byte, randomBytes), make([]byte, sha512.Size)
	_, _ = rand.Read(secret) // never fails
	_, _ = rand.Read(salt)
	password = base64.RawURLEncoding.EncodeToString(secret)
	key, err := pbkdf2.Key(sha512.New, password, salt, pbkdf2Iterations, sha512.Size)
	if err != nil {
		return "", "", fmt.Errorf("hash the password: %w", err)
	}
	encode := base64.StdEncoding.EncodeToString
	return password, fmt.Sprintf("%s%d$%s$%s", pbkdf2Prefix, pbkdf2Iterations, encode(salt), encode(key)), nil
}

// validateHash returns an error if hash is neither of bcrypt nor of PBKDF2.
func validateHash(hash string) error {
	if _, _, _, err := parsePBKDF2(hash); strings.HasPrefix(hash, pbkdf2Prefix) {
		return err
	}
	_, err := bcrypt.Cost([]byte(hash))
	return err
}

// matches reports whether hash is that of password. A wrong password costs at least as much as a
// check with bcrypt, whatever hash a user has.
func matches(hash string, password []byte) bool {
	if !strings.HasPrefix(hash, pbkdf2Prefix) {
		return bcrypt.CompareHashAndPassword([]byte(hash), password) == nil
	}
	if matchesPBKDF2(hash, password, maxIterations) {
		return true
	}
	_ = bcrypt.CompareHashAndPassword([]byte(decoyHash), password)
	return false
}

// matchesQuickly reports whether hash is that of password, if that costs a millisecond at most. Otherwise
// it returns false.
func matchesQuickly(hash string, password []byte) bool {
	return strings.HasPrefix(hash, pbkdf2Prefix) && matchesPBKDF2(hash, password, quickIterations)
}

// matchesPBKDF2 reports whether hash is one of PBKDF2 with so many iterations at most, and that of
// password.
func matchesPBKDF2(hash string, password []byte, most int) bool {
	iterations, salt, want, err := parsePBKDF2(hash)
	if err != nil || iterations > most {
		return false
	}
	got, err := pbkdf2.Key(sha512.New, string(password), salt, iterations, len(want))
	return err == nil && subtle.ConstantTimeCompare(got, want) == 1
}

// parsePBKDF2 returns the parts of a hash of PBKDF2.
func parsePBKDF2(hash string) (iterations int, salt, key []byte, err error) {
	fields := strings.Split(strings.TrimPrefix(hash, pbkdf2Prefix), "$")
	if len(fields) != 3 {
		return 0, nil, nil, errors.New("a hash of PBKDF2 is $7$iterations$salt$hash")
	}
	iterations, err = strconv.Atoi(fields[0])
	if err != nil || iterations < 1 || iterations > maxIterations {
		return 0, nil, nil, fmt.Errorf("the iterations of a hash of PBKDF2 must be a number from 1 to %d", maxIterations)
	}
	salt, saltErr := base64.StdEncoding.DecodeString(fields[1])
	key, keyErr := base64.StdEncoding.DecodeString(fields[2])
	if err := errors.Join(saltErr, keyErr); err != nil {
		return 0, nil, nil, fmt.Errorf("salt and hash of PBKDF2 must be base64: %w", err)
	}
	if len(salt) == 0 || len(key) != sha512.Size {
		return 0, nil, nil, fmt.Errorf("a hash of PBKDF2 needs a salt and %d bytes", sha512.Size)
	}
	return iterations, salt, key, nil
}
