//! A service in small: all prompts wait in one queue, and their texts are written in the order of the prompts.
//!
//!     service BUNDLE PROMPT...
use speccompile::{Bundle, Error, Request, Scheduler};

fn answer(folder: &str, prompts: &[String]) -> Result<(), Error> {
    let bundle = Bundle::open(folder, &[])?;
    let scheduler = Scheduler::new(&bundle, &[])?;
    let take = |prompt: &String| scheduler.submit(&Request::new(prompt)?.integer("max_new_tokens", 64)?, &[]);
    let taken = prompts.iter().map(take).collect::<Result<Vec<_>, _>>()?;
    for submission in taken {
        let pieces = submission.map(|piece| piece.map(|delta| delta.text)).collect::<Result<String, _>>()?;
        println!("{}", pieces);
    }
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.len() < 2 {
        eprintln!("usage: service BUNDLE PROMPT...");
        std::process::exit(2);
    }
    if let Err(error) = answer(&words[0], &words[1..]) {
        eprintln!("error: {}", error);
        if !error.hint.is_empty() {
            eprintln!("hint: {}", error.hint);
        }
        std::process::exit(error.exit_code);
    }
}
