"""`speccompile sign`."""

from pathlib import Path

import click

from speccompile.errors import UsageError

PATH = click.Path(path_type=Path)


@click.command("sign")
@click.argument("folder", metavar="[BUNDLE]", required=False, type=PATH)
@click.option("--key", metavar="FILE", type=PATH, help="Secret key of minisign, without a password.")
@click.option("--comment", metavar="TEXT", default="", help="A line that is signed as well, as who built it, and when.")
@click.option("--new-key", metavar="FILE", type=PATH, help="Make a pair of keys instead: FILE and FILE.pub.")
def command(folder: Path | None, key: Path | None, comment: str, new_key: Path | None) -> None:
    """Sign BUNDLE, so that those who have your public key know that it is yours.

    Hashes tell that a bundle is whole, not who built it. The signature is a file of the bundle, hashes.json.minisig,
    in the format of minisign, which can make and check it as well. generate, batch, serve and inspect take
    --require-signature FILE.pub, as do generate and inspect of speccompile-native; in Python it is
    `Bundle.open(folder, signed_by="FILE.pub")`. Needs the extra: pip install 'speccompile[sign]'.

    \b
    Examples:
      speccompile sign --new-key release.key
      speccompile sign build/demo --key release.key --comment 'release 3'
      speccompile generate build/demo --require-signature release.key.pub -p 'def main('
      minisign -V -p release.key.pub -m build/demo/hashes.json
    """
    from speccompile.bundle import signature
    from speccompile.bundle.reader import open_bundle

    if new_key is not None:
        if folder is not None or key is not None:
            raise UsageError(
                "received --new-key with a bundle or a key to sign it with, expected it alone",
                hint="make the keys first, then sign",
            )
        public = signature.make_keys(new_key)
        click.echo(f"{new_key} is the secret key, {new_key}.pub the public one: {public.name}")
        return
    if folder is None or key is None:
        raise UsageError(
            f"received no {'bundle' if folder is None else '--key'}, expected a bundle and --key FILE",
            hint="`speccompile sign --new-key FILE` makes a pair of keys",
        )
    open_bundle(folder)  # refuse to sign a damaged bundle
    public = signature.sign(folder, key, comment)
    click.echo(f"{folder} is signed by key {public.name}")
