// A service in small: all prompts wait in one queue, and their texts are written in the order of the prompts.
//
//	service BUNDLE [--regex EXPRESSION] PROMPT...
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"speccompile"
)

func text(submission *speccompile.Submission) (string, error) {
	var pieces strings.Builder
	for {
		delta, err := submission.Next()
		if delta == nil {
			return pieces.String(), err
		}
		pieces.WriteString(delta.Text)
	}
}

func answer(folder, regex string, prompts []string) error {
	bundle, err := speccompile.Open(folder, nil)
	if err != nil {
		return err
	}
	scheduler, err := bundle.Scheduler(nil)
	if err != nil {
		return err
	}
	var taken []*speccompile.Submission
	for _, prompt := range prompts {
		request, err := speccompile.NewRequest(prompt)
		if err == nil {
			err = request.SetInteger("max_new_tokens", 64)
		}
		if err == nil && regex != "" {
			err = request.SetConstraint("regex", regex)
		}
		if err != nil {
			return err
		}
		submission, err := scheduler.Submit(request, nil)
		if err != nil {
			return err
		}
		taken = append(taken, submission)
	}
	for _, submission := range taken {
		answered, err := text(submission)
		if err != nil {
			return err
		}
		fmt.Println(answered)
	}
	return nil
}

func main() {
	regex, first := "", 2
	if len(os.Args) > 3 && os.Args[2] == "--regex" {
		regex, first = os.Args[3], 4
	}
	if len(os.Args) <= first {
		fmt.Fprintln(os.Stderr, "usage: service BUNDLE [--regex EXPRESSION] PROMPT...")
		os.Exit(2)
	}
	err := answer(os.Args[1], regex, os.Args[first:])
	var refused *speccompile.Error
	if !errors.As(err, &refused) {
		return
	}
	fmt.Fprintln(os.Stderr, "error:", refused.Message)
	if refused.Hint != "" {
		fmt.Fprintln(os.Stderr, "hint:", refused.Hint)
	}
	os.Exit(refused.ExitCode)
}
